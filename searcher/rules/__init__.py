"""Rules: which run next, and when the answer is known. See `decision.Rule`."""
