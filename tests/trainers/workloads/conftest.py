"""The papers' networks, which take long to build, and pictures like those they train on."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.workloads.resnets import resnet32_cifar10, resnet50_cifar100


@pytest.fixture(scope="session")
def resnet_32(keras: Any) -> Any:
    return resnet32_cifar10.model()


@pytest.fixture(scope="session")
def resnet_50(keras: Any) -> Any:
    return resnet50_cifar100.model()


@pytest.fixture
def small_cifar(keras: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 pictures and 20 to test with, instead of those that Keras would download."""
    for name, classes in (("cifar10", 10), ("cifar100", 100)):
        made = partial(_pictures, classes)
        monkeypatch.setattr(getattr(keras.datasets, name), "load_data", made)


def _pictures(classes: int) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Their class shows in their colours; types and shapes are those of `keras.datasets`."""
    random = np.random.default_rng(0)
    labels = np.arange(120) % classes
    colours = random.integers(0, 200, (classes, 1, 1, 3))
    values = (colours[labels] + random.integers(0, 56, (120, 32, 32, 3))).astype(np.uint8)
    columns = labels[:, None].astype(np.uint8 if classes == 10 else np.int64)
    return (values[:100], columns[:100]), (values[100:], columns[100:])
