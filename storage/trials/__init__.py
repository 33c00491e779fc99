"""The trial store: searches, trials, and their measurements."""
