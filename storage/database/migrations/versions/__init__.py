"""The revisions. What one does must not depend on code that later revisions change."""
