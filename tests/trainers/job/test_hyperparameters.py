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

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.hyperparameters import (
    Configuration,
    momentum_after_switch,
    rate_function,
)
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.job.workload import Momentum, Workload
from tests.trainers.final import final_state
from tests.trainers.jobs import CONSTANT, CONSTANT_GRADIENT, DENSE, DESCRIBED, spec_of

VARIANTS: tuple[Momentum, ...] = get_args(Momentum)

MakeTrainer = Callable[[Workload, int], Any]


class TestMomentumAfterTheSwitch:
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
    def test_has_the_values_of_the_authors_runs(
        self, variant: Momentum, values: list[float]
    ) -> None:
        found = [momentum_after_switch(variant, 0.8, 8, stages) for stages in range(9)]
        assert found == pytest.approx(values)

    @given(
        variant=st.sampled_from(VARIANTS),
        momentum=st.floats(0, 1, exclude_max=True),
        workers=st.integers(1, 5000),
        stages=st.integers(0, 10**9),
    )
    def test_never_grows_beyond_that_before(
        self, variant: Momentum, momentum: float, workers: int, stages: int
    ) -> None:
        value = momentum_after_switch(variant, momentum, workers, stages)
        assert 0 <= value <= momentum
        assert value <= momentum_after_switch(variant, momentum, workers, stages + 1)
        if variant in ("ramped", "additive") and stages >= workers - 1:
            assert value == momentum


def configuration(
    workload: Workload,
    switch_percent: float = 50.0,
    workers: int = 4,
    examples: int = 160,
    protocols: tuple[str, str] = ("bsp", "asp"),
) -> tuple[Configuration, TrialSpec]:
    spec = spec_of(workload, workers, switch_percent, protocols=protocols)
    return Configuration(workload, spec, examples, rate_function(workload)), spec


class TestConfiguration:
    def test_epochs_are_counted_from_the_second_protocols_start(self) -> None:
        """10 worker-steps of 16 examples are an epoch; it starts at 200, wherever it was meant."""
        workload = replace(DENSE, momentum_after_switch="additive")
        found, _ = configuration(workload, 10.0)
        for step, factor in [
            (200, 0.25),
            (209, 0.25),
            (210, 0.5),
            (219, 0.5),
            (220, 0.75),
            (229, 0.75),
            (230, 1.0),
            (402, 1.0),
        ]:
            assert found.momentum(step, 200) == pytest.approx(factor * 0.9), step

    def test_an_epoch_may_end_within_a_batch(self) -> None:
        """2.5 worker-steps are an epoch."""
        workload = replace(DENSE, momentum_after_switch="ramped")
        found, _ = configuration(workload, examples=40, workers=8)
        values = [found.momentum(200 + step, 200) / 0.9 for step in range(8)]
        assert values == pytest.approx([1 / 8] * 3 + [1 / 4] * 2 + [1 / 2] * 3)

    @pytest.mark.parametrize(
        ("variant", "stage", "stages"),
        [("additive", 2_000, [1, 2, 3, 4, 5, 6, 7, 8, 8]), ("ramped", 6_400, [1, 2, 4, 8, 8])],
    )
    def test_a_stage_may_be_as_long_as_in_the_authors_runs(
        self, variant: Momentum, stage: int, stages: list[int]
    ) -> None:
        """After a switch at 10 percent of 64,000, with 8 workers and any number of examples."""
        workload = replace(
            DENSE,
            total_worker_steps=64_000,
            momentum_after_switch=variant,
            momentum_stage_worker_steps=stage,
        )
        found, _ = configuration(workload, 10.0, workers=8)
        starts = range(6_400, 6_400 + stage * len(stages), stage)
        for start, eighths in zip(starts, stages, strict=True):
            for step in (start, start + stage - 1):
                assert found.momentum(step, 6_400) == pytest.approx(0.9 * eighths / 8), step

    @pytest.mark.parametrize(("second_since", "momentum"), [(0, 0.0), (None, 0.9)])
    @pytest.mark.parametrize("switch_percent", [0.0, 50.0, 100.0])
    def test_it_goes_with_the_protocol(
        self, switch_percent: float, second_since: int | None, momentum: float
    ) -> None:
        workload = replace(DENSE, momentum_after_switch="zero")
        found, _ = configuration(workload, switch_percent)
        assert {found.momentum(step, second_since) for step in range(403)} == {momentum}

    def test_the_global_batch_is_of_all_workers_and_after_the_switch_alone(self) -> None:
        found, _ = configuration(replace(DENSE, batch_after_switch="global"), workers=8)
        assert [found.batches(since) for since in (None, 0, 200)] == [1, 8, 8]
        same, _ = configuration(DENSE, workers=8)
        assert [same.batches(since) for since in (None, 200)] == [1, 1]

    def test_boundaries_are_in_worker_steps_of_the_whole_job(self) -> None:
        """The first one before the switch, which is at 240, the other after it."""
        found, spec = configuration(DENSE, 60.0)
        assert switch_worker_step(spec) == 240
        for step, factor in [(0, 1), (199, 1), (200, 0.1), (299, 0.1), (300, 0.01), (402, 0.01)]:
            assert found.rate(step, 1) == pytest.approx(0.02 * factor)
            assert found.rate(step, 4) == pytest.approx(4 * 0.02 * factor)
            assert found.rate(step, 3) == pytest.approx(3 * 0.02 * factor)

    @pytest.mark.parametrize(
        ("limit", "expected"), [(None, [1, 3, 4, 64]), (4, [1, 3, 4, 4]), (1, [1, 1, 1, 1])]
    )
    def test_linear_scaling_ends_at_the_limit(
        self, limit: int | None, expected: list[float]
    ) -> None:
        found, _ = configuration(replace(DENSE, largest_scaling=limit))
        rates = [found.rate(0, gradients) for gradients in (1, 3, 4, 64)]
        assert rates == pytest.approx([0.02 * factor for factor in expected])


class TestSchedules:
    def piecewise(self, keras: Any, boundaries: list[int], values: list[float]) -> Workload:
        schedules = keras.optimizers.schedules
        return replace(
            DESCRIBED,
            learning_rate=lambda: schedules.PiecewiseConstantDecay(boundaries, values),
            learning_rate_boundaries=(),
        )

    @pytest.mark.parametrize("eta", [0.02, 0.055, 0.1, 0.3, 1 / 3])
    @pytest.mark.parametrize("factors", [(0.1, 0.01), (0.5, 1 / 3), (2.0, 0.0)], ids=str)
    @pytest.mark.parametrize("is_rounded", [False, True])
    def test_steps_are_the_same_job_as_boundaries(
        self, keras: Any, eta: float, factors: tuple[float, float], is_rounded: bool
    ) -> None:
        """Keras keeps the rate before a boundary at the boundary itself."""
        first, second = factors
        values = [eta, eta * first, eta * second]
        if is_rounded and 1 / 3 not in (eta, second):
            values = [float(f"{value:.12g}") for value in values]
        steps = self.piecewise(keras, [199, 299], values)
        plain = replace(
            DESCRIBED, learning_rate=eta, learning_rate_boundaries=((200, first), (300, second))
        )
        one, other = (workload_identity(workload, 4, "bsp", "asp") for workload in (steps, plain))
        assert one == other
        assert one.fingerprint == other.fingerprint
        rate, expected = rate_function(steps), rate_function(plain)
        assert [rate(step) for step in range(403)] == [expected(step) for step in range(403)]

    def test_steps_are_those_that_keras_takes(self, keras: Any) -> None:
        workload = self.piecewise(keras, [200, 300], [0.1, 0.03, 0.007])
        assert callable(workload.learning_rate)
        schedule, rate = workload.learning_rate(), rate_function(workload)
        for step in (0, 1, 199, 200, 201, 299, 300, 301, 402):
            assert rate(step) == pytest.approx(float(schedule(step)), rel=1e-6), step

    def test_another_schedule_is_another_job(self, keras: Any) -> None:
        schedules = keras.optimizers.schedules
        jobs = [
            DESCRIBED,
            replace(DESCRIBED, learning_rate_boundaries=()),
            *(
                replace(DESCRIBED, learning_rate=rate, learning_rate_boundaries=())
                for rate in (
                    lambda: schedules.CosineDecay(0.02, 403),
                    lambda: schedules.CosineDecay(0.02, 400),
                    lambda: schedules.CosineDecay(0.02, 403, alpha=0.1),
                    lambda: schedules.CosineDecay(0.03, 403),
                    lambda: schedules.ExponentialDecay(0.02, 403, 0.5),
                    lambda: schedules.PolynomialDecay(0.02, 403),
                )
            ),
        ]
        identities = [workload_identity(workload, 4, "bsp", "asp") for workload in jobs]
        assert len({identity.fingerprint for identity in identities}) == len(jobs)
        cosine = identities[2]
        assert cosine.learning_rate == pytest.approx(0.02)
        assert cosine.learning_rate_boundaries is None
        assert (
            workload_identity(replace(jobs[2]), 4, "bsp", "asp").fingerprint == cosine.fingerprint
        )

    def test_its_values_are_those_of_the_worker_steps(self, keras: Any) -> None:
        cosine = keras.optimizers.schedules.CosineDecay(0.02, 403)
        workload = replace(DESCRIBED, learning_rate=lambda: cosine, learning_rate_boundaries=())
        found, _ = configuration(workload)
        for step in (0, 1, 200, 402):
            expected = 0.02 * (1 + math.cos(math.pi * step / 403)) / 2
            assert found.rate(step, 1) == pytest.approx(expected, rel=1e-5, abs=1e-8)
            assert found.rate(step, 4) == pytest.approx(4 * expected, rel=1e-5, abs=1e-8)

    def test_it_may_begin_at_zero(self, keras: Any) -> None:
        """As warm-ups do."""
        schedules = keras.optimizers.schedules
        warm = replace(
            DESCRIBED,
            learning_rate=lambda: schedules.CosineDecay(
                0.0, 300, warmup_target=0.1, warmup_steps=100
            ),
            learning_rate_boundaries=(),
        )
        rate = rate_function(warm)
        assert [rate(0), rate(50), rate(100)] == pytest.approx([0.0, 0.05, 0.1])

    @pytest.mark.parametrize("pair", [("bsp", "asp"), ("asp", "ds-sync:2")], ids=",".join)
    def test_it_reaches_the_updates(
        self, keras: Any, make_trainer: MakeTrainer, tmp_path: Path, pair: tuple[str, str]
    ) -> None:
        """Without momentum the parameters tell the sum of the rates of all worker-steps."""
        schedules = keras.optimizers.schedules
        workload = replace(
            CONSTANT,
            total_worker_steps=40,
            momentum=0.0,
            learning_rate=lambda: schedules.PolynomialDecay(0.1, 40),
        )
        spec = spec_of(workload, 2, 50.0, protocols=pair)
        state = final_state(make_trainer(workload, 2), spec, tmp_path)
        rates = [0.1 * (1 - step / 40) + 0.0001 * step / 40 for step in range(40)]
        if pair[0] == "bsp":  # a round has the rate of its first worker-step
            rates = [rates[step - step % 2] if step < 20 else rates[step] for step in range(40)]
        expected = 1 - sum(rates) * CONSTANT_GRADIENT
        np.testing.assert_allclose(state.parameters, expected, rtol=1e-4)

    @pytest.mark.parametrize(
        ("rate", "words"),
        [
            (lambda _: lambda: 0.1, "float"),
            (lambda _: lambda: None, "NoneType"),
            (lambda _: lambda: 1 / 0, "ZeroDivisionError"),
            (lambda _: lambda step: 0.1, "learning_rate() failed"),
            *(
                (lambda one, first=first: lambda: one.ExponentialDecay(first, 10, 0.5), "step 0")
                for first in (-0.1, math.nan, math.inf)
            ),
        ],
    )
    def test_what_is_none_is_refused_in_one_line(self, keras: Any, rate: Any, words: str) -> None:
        schedule = rate(keras.optimizers.schedules)
        workload = replace(DENSE, learning_rate=schedule, learning_rate_boundaries=())
        for ask in (rate_function, lambda job: workload_identity(job, 4, "bsp", "asp")):
            with pytest.raises(WorkloadError) as error:
                ask(workload)
            for word in (words, "learning_rate", "dense-digits"):
                assert word in str(error.value)
            assert "\n" not in str(error.value)
