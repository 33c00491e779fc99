"""The trial store: searches, trials, and what each measured."""
