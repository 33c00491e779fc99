"""The program `syncswitch-run`."""
