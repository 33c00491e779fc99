"""Stores trials, evaluations and timing policies in one SQL database."""
