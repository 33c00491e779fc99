"""The papers' networks, which take long to build."""

from __future__ import annotations

from typing import Any

import pytest

from syncswitch.trainers.workloads.resnets import resnet32_cifar10, resnet50_cifar100


@pytest.fixture(scope="session")
def resnet_32(keras: Any) -> Any:
    return resnet32_cifar10.model()


@pytest.fixture(scope="session")
def resnet_50(keras: Any) -> Any:
    return resnet50_cifar100.model()
