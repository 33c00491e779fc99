"""The trained model as flat vectors: what cluster and simulation share of TensorFlow."""
