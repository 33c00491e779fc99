"""Training on TensorFlow: a parameter server and workers, wherever they run."""
