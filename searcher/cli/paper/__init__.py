"""The commands on the papers' figures."""
