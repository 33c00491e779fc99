"""The tables of a report; pure."""
