"""Kinds of trainers that make the runs of a search: their options, and how each is put together."""
