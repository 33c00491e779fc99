from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.records.job import OWN_MOMENTUM, OWN_OPTIMIZER, SEMI_SYNC
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.hyperparameters import (
    Configuration,
    highest_rate,
    momentum_after_switch,
    momentum_rule,
    most_raise,
    rate_function,
    rates_text,
)
from syncswitch.trainers.job.workload import Momentum, Workload
from tests.trainers.clicks import of_keras
from tests.trainers.final import final_state
from tests.trainers.jobs import CONSTANT, CONSTANT_GRADIENT, DENSE, DESCRIBED, spec_of
from tests.wording import Said

MakeTrainer = Callable[[Workload, int], Any]


@pytest.mark.parametrize(
    ("variant", "values"),
    [
        # Of 8 workers, 0 to 8 stages after the switch.
        ("same", [0.8] * 9),
        ("zero", [0.0] * 9),
        ("scaled", [0.1] * 9),
        ("ramped", [0.1, 0.2, 0.4, *[0.8] * 6]),
        ("additive", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8]),
    ],
)
def test_the_momentum_after_the_switch_has_the_values_of_the_authors_runs(
    variant: Momentum, values: list[float]
) -> None:
    found = [momentum_after_switch(variant, 0.8, 8, stages) for stages in range(9)]
    assert found == pytest.approx(values)


@given(
    variant=st.sampled_from(get_args(Momentum)),
    momentum=st.floats(0, 1, exclude_max=True),
    workers=st.integers(1, 5000),
    stages=st.integers(0, 10**9),
)
def test_the_momentum_never_grows_beyond_that_before_the_switch(
    variant: Momentum, momentum: float, workers: int, stages: int
) -> None:
    value = momentum_after_switch(variant, momentum, workers, stages)
    assert 0 <= value <= momentum
    assert value <= momentum_after_switch(variant, momentum, workers, stages + 1)
    if variant in ("ramped", "additive") and stages >= workers - 1:
        assert value == momentum


def configuration(workload: Workload, workers: int = 4, examples: int = 160) -> Configuration:
    return Configuration(
        workload, spec_of(workload, workers, 50.0), examples, rate_function(workload)
    )


def with_momentum(variant: Momentum, stage: int | None = None) -> Workload:
    return replace(
        DENSE,
        total_worker_steps=64_000,
        momentum_after_switch=variant,
        momentum_stage_worker_steps=stage,
    )


@pytest.mark.parametrize(
    ("variant", "stage", "starts"),
    [
        # Of worker-steps after the switch at which 1/8, 2/8 ... begin; 10 of them are an epoch.
        ("additive", None, {0: 1, 10: 2, 20: 3, 70: 8, 80: 8}),
        ("additive", 2_000, {0: 1, 2_000: 2, 4_000: 3, 14_000: 8}),
        ("ramped", 6_400, {0: 1, 6_400: 2, 12_800: 4, 19_200: 8, 25_600: 8}),
    ],
)
def test_a_stage_is_an_epoch_or_as_long_as_in_the_authors_runs(
    variant: Momentum, stage: int | None, starts: dict[int, int]
) -> None:
    """Counted from the second protocol's start, wherever that was meant to be."""
    found = configuration(with_momentum(variant, stage), workers=8)
    for start, eighths in starts.items():
        for step in (start, start + (stage or 10) - 1):
            assert found.momentum(200 + step, 200) == pytest.approx(0.9 * eighths / 8), step


def test_an_epoch_may_end_within_a_batch() -> None:
    """2.5 worker-steps are an epoch."""
    found = configuration(with_momentum("ramped"), workers=8, examples=40)
    values = [found.momentum(200 + step, 200) / 0.9 for step in range(8)]
    assert values == pytest.approx([1 / 8] * 3 + [1 / 4] * 2 + [1 / 2] * 3)


def test_momentum_and_global_batch_go_with_the_second_protocol() -> None:
    found = configuration(
        replace(DENSE, momentum_after_switch="zero", batch_after_switch="global"), workers=8
    )
    for since, momentum, batches in ((None, 0.9, 1), (0, 0.0, 8), (200, 0.0, 8)):
        assert {found.momentum(step, since) for step in (0, 200, 402)} == {momentum}
        assert found.batches(since) == batches
    assert configuration(DENSE, workers=8).batches(200) == 1


def test_boundaries_are_in_worker_steps_of_the_whole_job() -> None:
    found = configuration(DENSE)
    for step, factor in [(0, 1), (199, 1), (200, 0.1), (299, 0.1), (300, 0.01), (402, 0.01)]:
        for gradients in (1, 3, 4):
            assert found.rate(step, gradients) == pytest.approx(gradients * 0.02 * factor)


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, [1, 3, 4, 64]), (4, [1, 3, 4, 4]), (1, [1, 1, 1, 1])]
)
def test_linear_scaling_ends_at_the_limit(limit: int | None, expected: list[float]) -> None:
    found = configuration(replace(DENSE, largest_scaling=limit))
    rates = [found.rate(0, gradients) for gradients in (1, 3, 4, 64)]
    assert rates == pytest.approx([0.02 * factor for factor in expected])


def scheduled(schedule: Callable[[], Any]) -> Workload:
    return replace(DESCRIBED, learning_rate=schedule, learning_rate_boundaries=())


@pytest.mark.parametrize("eta", [0.02, 0.055, 0.1, 0.3, 1 / 3])
@pytest.mark.parametrize("factors", [(0.1, 0.01), (0.5, 1 / 3), (2.0, 0.0)], ids=str)
@pytest.mark.parametrize("is_rounded", [False, True])
def test_a_schedule_with_steps_is_the_same_job_as_boundaries(
    keras: Any, eta: float, factors: tuple[float, float], is_rounded: bool
) -> None:
    """Keras keeps the rate before a boundary at the boundary itself."""
    first, second = factors
    values = [eta, eta * first, eta * second]
    if is_rounded and 1 / 3 not in (eta, second):
        values = [float(f"{value:.12g}") for value in values]
    steps = scheduled(lambda: keras.optimizers.schedules.PiecewiseConstantDecay([199, 299], values))
    plain = replace(
        DESCRIBED, learning_rate=eta, learning_rate_boundaries=((200, first), (300, second))
    )
    one, other = (workload_identity(workload, 4, "bsp", "asp") for workload in (steps, plain))
    assert one == other
    rate, expected = rate_function(steps), rate_function(plain)
    assert [rate(step) for step in range(403)] == [expected(step) for step in range(403)]


def test_another_schedule_is_another_job(keras: Any) -> None:
    of = keras.optimizers.schedules
    jobs = [
        DESCRIBED,
        replace(DESCRIBED, learning_rate_boundaries=()),
        scheduled(lambda: of.CosineDecay(0.02, 403)),
        scheduled(lambda: of.CosineDecay(0.02, 400)),
        scheduled(lambda: of.CosineDecay(0.02, 403, alpha=0.1)),
        scheduled(lambda: of.CosineDecay(0.03, 403)),
        scheduled(lambda: of.ExponentialDecay(0.02, 403, 0.5)),
        scheduled(lambda: of.PolynomialDecay(0.02, 403)),
    ]
    identities = [workload_identity(workload, 4, "bsp", "asp") for workload in jobs]
    assert len({identity.fingerprint for identity in identities}) == len(jobs)
    cosine = identities[2]
    assert cosine.recipe.learning_rate == pytest.approx(0.02)
    assert cosine.recipe.learning_rate_boundaries is None
    assert workload_identity(replace(jobs[2]), 4, "bsp", "asp").fingerprint == cosine.fingerprint


def test_the_values_of_a_schedule_are_those_of_the_worker_steps(keras: Any) -> None:
    """It may begin at zero, as warm-ups do."""
    of = keras.optimizers.schedules
    found = configuration(scheduled(lambda: of.CosineDecay(0.02, 403)))
    for step in (0, 1, 200, 402):
        expected = 0.02 * (1 + math.cos(math.pi * step / 403)) / 2
        assert found.rate(step, 1) == pytest.approx(expected, rel=1e-5, abs=1e-8)
        assert found.rate(step, 4) == pytest.approx(4 * expected, rel=1e-5, abs=1e-8)
    warm = {"warmup_target": 0.1, "warmup_steps": 100}
    rate = rate_function(scheduled(lambda: of.CosineDecay(0.0, 300, **warm)))
    assert [rate(0), rate(50), rate(100)] == pytest.approx([0.0, 0.05, 0.1])


def test_the_highest_rate_of_a_worker_is_that_of_a_round(keras: Any) -> None:
    plain = replace(DENSE, learning_rate=0.02)
    assert highest_rate(plain, 4) == pytest.approx(0.08)
    assert highest_rate(replace(plain, largest_scaling=2), 4) == pytest.approx(0.04)
    # It comes at worker-step 201 of 403.
    warm = {"warmup_target": 0.1, "warmup_steps": 201}
    late = scheduled(lambda: keras.optimizers.schedules.CosineDecay(0.0, 300, **warm))
    assert highest_rate(late, 3) == pytest.approx(0.3, rel=0.01)


@pytest.mark.parametrize("pair", [("bsp", "asp"), ("asp", "ds-sync:2")], ids=",".join)
def test_a_schedule_reaches_the_updates(
    keras: Any, make_trainer: MakeTrainer, tmp_path: Path, pair: tuple[str, str]
) -> None:
    """Without momentum the parameters tell the sum of the rates of all worker-steps."""
    workload = replace(
        CONSTANT,
        total_worker_steps=40,
        momentum=0.0,
        learning_rate=lambda: keras.optimizers.schedules.PolynomialDecay(0.1, 40),
    )
    spec = spec_of(workload, 2, 50.0, protocols=pair)
    state = final_state(make_trainer(workload, 2), spec, tmp_path)
    rates = [0.1 * (1 - step / 40) + 0.0001 * step / 40 for step in range(40)]
    if pair[0] == "bsp":  # a round has the rate of its first worker-step
        rates = [rates[step - step % 2] if step < 20 else rates[step] for step in range(40)]
    expected = 1 - sum(rates) * CONSTANT_GRADIENT
    np.testing.assert_allclose(state.parameters, expected, rtol=1e-4)


def test_what_is_no_schedule_is_refused_in_one_line(keras: Any, said: Said) -> None:
    of = keras.optimizers.schedules
    for rate in (
        lambda: 0.1,
        lambda: None,
        lambda: 1 / 0,
        lambda step: 0.1,
        lambda: of.ExponentialDecay(-0.1, 10, 0.5),
        lambda: of.ExponentialDecay(math.nan, 10, 0.5),
        lambda: of.ExponentialDecay(math.inf, 10, 0.5),
    ):
        for ask in (rate_function, lambda job: workload_identity(job, 4, "bsp", "asp")):
            said.refusal("workload-unsuitable", ask, scheduled(rate))


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("Adam", {}, None),
        ("SGD", {"momentum": 0.9}, None),
        ("Adam", {"use_ema": True}, "the optimizer has use_ema, so all workers share"),
        ("Adam", {"gradient_accumulation_steps": 3}, "the optimizer has gradient_accumulation_st"),
        ("Ftrl", {}, "the optimizer has the rule of Ftrl, so all workers share its variables"),
    ],
)
def test_optimizers_that_workers_cannot_have_to_themselves_are_shared_and_it_is_said_once(
    kind: str, settings: dict[str, Any], words: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    optimizer = of_keras(kind, **settings)
    job = replace(CONSTANT, name=f"shared {kind} {settings}", optimizer=optimizer)
    spec = spec_of(job, 2, 50.0)
    assert spec.identity.momentum_after_switch == (
        "same" if words else OWN_MOMENTUM if kind == "SGD" else OWN_OPTIMIZER
    )
    for one in (job, job, replace(job, momentum_after_switch="same")):
        Configuration(one, spec_of(one, 2, 50.0), 64, rate_function(one))
    # Pushes that are not applied one by one have nothing to lose.
    Configuration(job, spec_of(job, 2, 50.0, protocols=("bsp", "gba:3")), 64, rate_function(job))
    assert len(caplog.messages) == (words is not None)
    for message in caplog.messages:
        assert message.startswith(f"workload {job.name!r}: {words}")
        assert message.endswith('or give momentum_after_switch="same" if that is meant')


@pytest.mark.parametrize(
    ("second", "changes", "rule"),
    [
        ("qsr:8:0.4:semi-sync", {}, SEMI_SYNC),
        ("local-sgd:4:semi-sync", {"momentum_after_switch": "zero"}, "zero"),
        ("local-sgd:4:semi-sync", {"optimizer": of_keras("SGD", momentum=0.9)}, SEMI_SYNC),
        # Nobody has recorded these.
        ("local-sgd:4:semi-sync", {"optimizer": of_keras("Adam")}, "same"),
        ("local-sgd:4:zeroed:semi-sync", {}, "same"),
        ("local-sgd:4:semi-sync:growing", {}, "same"),
        ("local-sgd:4", {}, "same"),
    ],
)
def test_local_sgd_with_a_period_over_all_workers_has_a_rule_as_far_as_it_was_recorded(
    second: str, changes: dict[str, Any], rule: str
) -> None:
    assert momentum_rule(replace(CONSTANT, **changes), second) == rule


@pytest.mark.parametrize(
    ("kind", "workers", "limit", "most"),
    [
        ("Adam", 16, None, 4.0),
        ("Lion", 4, None, 2.0),
        ("AdamW", 8, 4, 4 / math.sqrt(8)),
        ("Adam", 16, 2, 1.0),
        ("Adam", 1, None, 1.0),
        ("SGD", 16, None, 1.0),
        (None, 16, None, 1.0),
    ],
)
def test_an_adaptive_optimizer_may_raise_its_rate_to_that_of_bsp_over_the_root_of_n(
    keras: Any, kind: str | None, workers: int, limit: int | None, most: float
) -> None:
    def optimizer() -> Any:
        return getattr(keras.optimizers, kind or "")()

    job = replace(CONSTANT, optimizer=kind and optimizer, largest_scaling=limit)
    assert most_raise(job, workers) == pytest.approx(most)
    assert most_raise(replace(job, batch_after_switch="global"), workers) == 1


def test_the_rate_of_an_adaptive_round_rises_from_that_of_one_worker(keras: Any) -> None:
    def rates(**changes: Any) -> list[float]:
        job = replace(
            CONSTANT, total_worker_steps=320, **{"optimizer": of_keras("Adam"), **changes}
        )
        configuration = Configuration(job, spec_of(job, 4, 50.0), 64, rate_function(job))
        return [configuration.rate(step, 4) / configuration.rate(step, 1) for step in (0, 5, 20)]

    assert rates() == pytest.approx([1, 1 + 3 / 4, 4])
    assert rates(largest_scaling=2) == pytest.approx([1, 1 + 1 / 4, 2])
    # SGD, and a schedule, which has the warm-up that it needs.
    assert rates(optimizer=of_keras("SGD")) == [4, 4, 4]
    assert rates(optimizer=None) == [4, 4, 4]
    constant = keras.optimizers.schedules.PiecewiseConstantDecay([300], [0.1, 0.01])
    assert rates(learning_rate=lambda: constant) == [4, 4, 4]


def test_a_worker_has_made_its_share_of_the_updates_since_the_switch() -> None:
    def own_updates(workload: Workload, *counts: int | None) -> int:
        spec = spec_of(workload, 4, 50.0)
        return Configuration(workload, spec, 64, rate_function(workload)).own_updates(*counts)  # type: ignore[arg-type]

    # 25 rounds, and then 40 pushes.
    assert own_updates(CONSTANT, 65, 100, 140) == 25 + 10
    assert own_updates(CONSTANT, 25, 100, 100) == 25
    assert own_updates(CONSTANT, 65, 100, None) == 65
    assert own_updates(CONSTANT, 25, None, 100) == 25
    # With gradients of 4 batches the same steps are 10 pushes.
    whole = replace(CONSTANT, batch_after_switch="global")
    assert own_updates(whole, 35, 100, 140) == 25 + round(10 / 4)


def test_what_becomes_of_an_adaptive_rate_is_said(keras: Any, said: Said) -> None:
    steps = keras.optimizers.schedules.PiecewiseConstantDecay([300], [0.1, 0.01])

    def words(workers: int = 8, *pair: str, **changes: Any) -> str | None:
        fields = {"optimizer": of_keras("Adam"), "learning_rate": 0.001, **changes}
        job = replace(CONSTANT, total_worker_steps=320, **fields)
        return rates_text(job, workload_identity(job, workers, *(pair or ("bsp", "asp"))))

    said(words())
    said(words(largest_scaling=3))
    said(words(learning_rate=lambda: steps))
    said(words(momentum_after_switch="same"))
    said(words(batch_after_switch="global"))
    said(words(8, "ssp:3", "asp"))
    said(words(8, "bsp", "local-sgd:4"))
    assert words(1) is words(largest_scaling=1) is None
    assert words(8, "bsp", "gba:3", largest_scaling=1) is None
    assert words(optimizer=None) is words(optimizer=of_keras("SGD")) is None
