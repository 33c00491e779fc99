"""The versions of the software that a measurement was made with."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

_DISTRIBUTIONS = ("syncswitch", "tensorflow", "keras", "numpy", "optuna")


def software_versions() -> dict[str, str]:
    """Returns the version of each installed distribution by its name."""
    return dict(_installed())


@cache
def _installed() -> dict[str, str]:
    """Reads the packages' files, which takes as long as a short training of a small model."""
    versions = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # a checkout that is not installed, or a TensorFlow of another name
    return versions
