"""Searches without training: replayed on recorded runs, or forecast."""
