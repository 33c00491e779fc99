"""Training on a simulated cluster: real gradients and protocols on a virtual clock."""
