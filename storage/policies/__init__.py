"""The policy registry: versions, aliases, and files."""
