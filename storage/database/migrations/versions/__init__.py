"""One module per revision, numbered in order."""
