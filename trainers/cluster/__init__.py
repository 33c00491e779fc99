"""The TensorFlow runtime: a parameter server, workers, and a chief that drives them."""
