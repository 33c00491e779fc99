"""Workloads that come with syncswitch."""
