"""Training on a simulated cluster: real gradients and protocols on a virtual clock."""

DEFAULT_PROFILE = "uniform"
"""Name of the default profile."""
