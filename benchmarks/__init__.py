"""Measurements, never part of pass or fail: `make benchmark`."""
