"""Questions about many runs, answered by the database; `frames.py` is their face."""
