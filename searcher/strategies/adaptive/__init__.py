"""The adaptive strategy: a belief over all switch points, and the trial that is worth most."""
