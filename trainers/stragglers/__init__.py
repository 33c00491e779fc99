"""Who is slow, and what is done about it; pure."""
