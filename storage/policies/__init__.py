"""The policy registry: versions, aliases, files, and policies of related jobs."""
