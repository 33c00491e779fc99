"""Where the parts of a cluster run: threads, processes, servers that a platform started."""
