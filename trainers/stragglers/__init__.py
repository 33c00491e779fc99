"""Detects stragglers and decides what to do about them; pure."""
