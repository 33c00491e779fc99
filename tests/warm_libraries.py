"""What the fork server of `warm_program.py` imports before it forks, as a zygote does."""

from __future__ import annotations

import os

# A GPU cannot be used after a fork.
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import optuna  # noqa: F401
import sklearn.datasets  # noqa: F401
