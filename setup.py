"""Finds the packages, whose folders have other names; all else is in setup.cfg."""

from setuptools import find_packages, setup

FOLDERS = ("cli*", "searcher*", "storage*", "trainers*")

setup(packages=[f"syncswitch.{name}" for name in find_packages(include=FOLDERS)])
