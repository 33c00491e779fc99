"""Training commands of the user's on the command line."""
