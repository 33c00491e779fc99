"""The commands that make runs."""
