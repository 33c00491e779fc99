"""The command `syncswitch-search`: one file a command."""
