"""What is kept of a run while it trains."""
