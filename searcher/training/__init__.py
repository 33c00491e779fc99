"""Trainings with a policy: which it is, where one goes on, what it teaches."""
