"""Tests of the workloads that come with syncswitch."""
