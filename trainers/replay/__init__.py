"""Nothing is trained: recorded runs answer."""
