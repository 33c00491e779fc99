"""Where examples are read from, if they are not in memory."""
