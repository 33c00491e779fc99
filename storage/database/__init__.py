"""Opens databases: connections, transactions, migrations."""
