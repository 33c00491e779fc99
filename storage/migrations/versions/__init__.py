"""Alembic migrations of the syncswitch tables."""
