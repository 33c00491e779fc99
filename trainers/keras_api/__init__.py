"""Training with a policy from a Keras program of the user's own."""
