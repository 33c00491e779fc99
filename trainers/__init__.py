"""Does the training: turns a trial specification into one measured training run."""
