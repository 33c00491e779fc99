from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.cluster.processes.this_machine import (
    NO_GPU,
    check_gpus_per_worker,
    place_on_gpus,
    visible_gpus,
)
from tests.failing import fails
from tests.wording import Said


def test_without_gpus_they_are_hidden_from_all() -> None:
    assert place_on_gpus(2, ["0", "1"], 0.0) == (NO_GPU, NO_GPU)


@pytest.mark.parametrize(
    ("gpus", "share", "seen"),
    [(["3", "GPU-8ab", "5"], 1.0, ["3", "GPU-8ab"]), (["0", "1"], 0.5, ["0", "0"])],
)
def test_each_worker_has_its_gpu_or_share(gpus: list[str], share: float, seen: list[str]) -> None:
    expected = [{"CUDA_VISIBLE_DEVICES": gpu, "TF_FORCE_GPU_ALLOW_GROWTH": "true"} for gpu in seen]
    assert list(place_on_gpus(2, gpus, share)) == expected


@given(
    workers=st.integers(1, 40),
    count=st.integers(0, 10),
    share=st.sampled_from([0.0, 1.0, 0.5, 1 / 3, 0.33, 0.25, 0.1, 0.01]),
)
def test_no_gpu_has_more_workers_than_its_shares(workers: int, count: int, share: float) -> None:
    gpus = [f"GPU-{number}" for number in range(count)]
    if share and workers > count * int(1 / share + 1e-9):
        with fails("cluster-unusable", f"this process sees {count or 'none'}"):
            place_on_gpus(workers, gpus, share)
        return
    environments = place_on_gpus(workers, gpus, share)
    assert len(environments) == workers
    for gpu in gpus:
        sharing = sum(one["CUDA_VISIBLE_DEVICES"] == gpu for one in environments)
        assert sharing * share <= 1.0 + 1e-9


@pytest.mark.parametrize("share", [-1.0, 1.5, 2.0, 0.009, 1e-320, float("nan"), float("inf")])
def test_other_shares_are_refused(share: float) -> None:
    with fails("parameter-invalid", r"gpus_per_worker is .* one GPU; allowed: 1, 0 for none"):
        check_gpus_per_worker(share)


def test_what_would_fit_is_said(said: Said) -> None:
    for seen, share in ((["0"], 1.0), (["0"], 0.5), ([], 1.0)):
        said.refusal("cluster-unusable", place_on_gpus, 3, seen, share)
    assert place_on_gpus(3, ["0"], 0.33)[2]["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize(
    ("environment", "count", "expected"),
    [
        ({}, 2, ("0", "1")),
        ({}, 0, ()),
        ({"CUDA_VISIBLE_DEVICES": "2, 0"}, 2, ("2", "0")),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,MIG-2"}, 2, ("GPU-1", "MIG-2")),
        # CUDA stops at the first that it does not know, so that TensorFlow sees fewer.
        ({"CUDA_VISIBLE_DEVICES": "1,-1,0"}, 1, ("1",)),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0, ()),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0, ()),
    ],
)
def test_children_are_given_what_this_process_sees(
    environment: dict[str, str], count: int, expected: tuple[str, ...]
) -> None:
    assert visible_gpus(environment, count) == expected
