"""The batches of a job: which examples are in them, and how they get to the steps."""
