"""One training run: who does which step, what is kept of it, and what becomes of losses."""
