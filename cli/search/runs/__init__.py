"""The commands on single runs and switch points."""
