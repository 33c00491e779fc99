"""Sweeps and evaluations: runs at given switch points, of one job or of several."""
