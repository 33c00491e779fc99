from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.ray.options import RayOptions


@pytest.fixture(autouse=True)
def _ray_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_the_usual_options_are_accepted() -> None:
    RayOptions().check()
    RayOptions("10.0.0.1:6379", 0.5, 0.25, 2.0, "pack").check()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (RayOptions(cpus_per_worker=0.0), ("--cpus-per-worker", "0", "above 0")),
        (RayOptions(cpus_per_ps=-1.0), ("--cpus-per-ps", "-1")),
        (RayOptions(cpus_per_ps=float("nan")), ("--cpus-per-ps", "nan")),
        (RayOptions(cpus_per_ps=float("inf")), ("--cpus-per-ps", "inf")),
        (RayOptions(gpus_per_worker=2.0), ("--gpus-per-worker", "2")),
        (RayOptions("head"), ("--ray-address", "'head'", "host:port")),
        (RayOptions("head:"), ("'head:'", "host:port")),
        (RayOptions(":6379"), ("':6379'", "host:port")),
        (RayOptions("head:70000"), ("'head:70000'", "host:port")),
        (RayOptions("ray://head:10001"), ("ray://head:10001", "Client", "node", "auto")),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    options: RayOptions, words: tuple[str, ...]
) -> None:
    with pytest.raises(UserError) as error:
        options.check()
    text = str(error.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'syncswitch\[ray\]'"):
        RayOptions().check()


@given(address=st.text(max_size=20))
def test_an_address_has_two_parts_or_is_refused(address: str) -> None:
    try:
        host, port = RayOptions(address).host_and_port()
    except UserError:
        return
    assert host
    assert 0 < port < 65536


def test_the_address_of_a_host_may_be_one_of_ipv6() -> None:
    assert RayOptions("[::1]:6379").host_and_port() == ("::1", 6379)
