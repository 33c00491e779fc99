"""Opens databases: connections, transactions, checks."""
