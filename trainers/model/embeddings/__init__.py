"""Embeddings of which a batch moves its rows alone."""
