"""One training run: a parameter server, workers, and a chief that drives them."""
