"""Learning from later trainings: the switch of the next one, and revisions of policies."""
