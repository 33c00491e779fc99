"""The log and record of a run."""
