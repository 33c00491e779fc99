"""Sources of examples that are not in memory."""
