"""Replays recorded runs instead of training."""
