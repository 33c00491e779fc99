"""Does: turns one trial specification into one measured training run."""
