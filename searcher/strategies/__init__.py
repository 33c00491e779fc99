"""Strategies: which run is next, and when the answer is known. See `base.Strategy`."""
