"""Trainers whose chief is a process of its own."""
