"""Makes the trials of a search, one after the other or several at once."""
