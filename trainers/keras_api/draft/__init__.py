"""The first draft of a workload file, for a model and data that somebody names."""
