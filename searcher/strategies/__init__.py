"""Strategies: which trial is next, and when the answer is known. See `base.Strategy`."""
