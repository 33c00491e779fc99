"""Tests of the trainers; a package, so that its modules can share test tools."""
