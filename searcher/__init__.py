"""Decides which training runs a search makes, and when the timing policy is known."""
