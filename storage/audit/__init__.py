"""Whether a database is whole."""
