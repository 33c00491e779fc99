"""The command `syncswitch-run`, and what both command lines share."""
