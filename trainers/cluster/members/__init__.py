"""Parameter servers and workers as the chief sees them, as threads or as processes."""
