"""Trainings with a policy: its look-up, checkpoints, and the record of each use."""
