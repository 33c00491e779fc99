"""Uses of policies: later runs with them, in the database or on the way to one."""
