"""Training with a policy from your own Keras program."""
