"""The adaptive strategy: a belief over all switch points, and the run that is worth most."""
