"""How far each search is, and what is to come."""
