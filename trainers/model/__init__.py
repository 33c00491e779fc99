"""The trained model as flat vectors, for cluster and simulation."""
