"""What the server of `warm_program.py` imports before it forks, as a fork server does."""

from __future__ import annotations

import gc
import os
import pkgutil
from contextlib import suppress
from importlib import import_module

# A GPU cannot be used after a fork.
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import optuna  # noqa: F401

import syncswitch

# All of our own, whatever it is called: what is missing here each program imports for itself.
for module in pkgutil.walk_packages(syncswitch.__path__, "syncswitch."):
    with suppress(ImportError):  # of an extra that is not installed
        import_module(module.name)

# Nobody looks for garbage in them, neither here nor in a fork: they stay.
gc.freeze()
