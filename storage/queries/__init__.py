"""Queries about many runs, which the database answers; `frames.py` makes tables of them."""
