"""The papers: what they say, and their figures from runs."""
