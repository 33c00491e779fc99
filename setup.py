"""Finds the packages, whose folders have other names; all else is in setup.cfg."""

from setuptools import find_packages, setup

FOLDERS = ("cli*", "searcher*", "storage*", "trainers*")

found = find_packages(include=FOLDERS)
setup(packages=["syncswitch", *(f"syncswitch.{name}" for name in found)])
