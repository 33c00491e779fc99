"""Stragglers and failures on purpose."""
