"""Uses of policies: the later runs with each, in the database or on the way to one."""
