"""Several searches, versions or jobs side by side on one page."""
