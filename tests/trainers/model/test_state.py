from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.model.optimizer import make_optimizer
from syncswitch.trainers.model.state import StateForm, restored_model
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.trainer import Observer
from tests.trainers.jobs import DENSE, digits_data, normalized_model, spec_of

NORMALIZED = replace(DENSE, name="normalized", model=normalized_model)


def form_of(workload: Workload) -> StateForm:
    function = ModelFunction(workload, workload.data())
    return StateForm(workload, function, make_optimizer(workload, function.parameters))


def some_state(form: StateForm) -> ModelState:
    drawn = np.random.default_rng(2)
    sizes = (form.parameters.size, form.slots.size, form.statistics.size)
    vectors = (drawn.random(size).astype(np.float32) for size in sizes)
    return ModelState(*vectors, updates=17)


def log_of(spec: TrialSpec, done: int = 0) -> RunLog:
    log = RunLog(spec, Observer(), lambda accuracy: False)
    log.fork(done, min(done, 200), 12.5)
    return log


def checkpoint_of(form: StateForm, spec: TrialSpec, path: Path, worker_step: int = 100) -> Path:
    form.save(path, (25.0,), some_state(form), spec, log_of(spec, worker_step))
    return path


GROUPS = ("parameters", "slots", "statistics")


class TestStateForm:
    def test_initial_values_follow_the_seed_and_are_built_once_for_each(self) -> None:
        built = []

        def counted() -> Any:
            built.append(normalized_model())
            return built[-1]

        form = form_of(replace(NORMALIZED, model=counted))
        built.clear()
        fresh = {seed: form_of(NORMALIZED).initial(seed) for seed in (1, 2)}
        for seed in (1, 2, 1, 2):
            state = form.initial(seed)
            for group in GROUPS:
                np.testing.assert_array_equal(getattr(state, group), getattr(fresh[seed], group))
                # As a run may do that is given them.
                getattr(state, group)[:] = 7.0
        assert len(built) == 2
        assert not np.allclose(fresh[1].parameters, fresh[2].parameters)
        assert fresh[1].updates == 0
        np.testing.assert_array_equal(fresh[1].slots, 0)
        # Means of 0, variances of 1.
        np.testing.assert_array_equal(fresh[1].statistics, [0.0] * 16 + [1.0] * 16)
        spec = spec_of(NORMALIZED, 4, 50.0, seed=2)
        begun = form.begin(spec, log_of(spec))
        np.testing.assert_array_equal(begun.parameters, fresh[2].parameters)

    def test_a_checkpoint_brings_all_of_a_state_back(self, tmp_path: Path) -> None:
        form = form_of(NORMALIZED)
        spec = spec_of(NORMALIZED, 4, 50.0)
        fork = replace(spec, fork_from=checkpoint_of(form, spec, tmp_path / "one.npz"))
        log = log_of(fork)
        state, expected = form_of(NORMALIZED).begin(fork, log), some_state(form)
        for group in GROUPS:
            np.testing.assert_array_equal(getattr(state, group), getattr(expected, group))
        assert state.updates == 17
        assert (log.done, log.elapsed_seconds, log.position.inherited_seconds) == (100, 12.5, 12.5)

    def test_of_many_checkpoints_the_furthest_stay(self, tmp_path: Path) -> None:
        """Those of an earlier part of the run are among them; by default all stay."""
        form = form_of(DENSE)
        for kept, names in ((None, ["5", "10", "15", "20", "25"]), (2, ["20", "25"])):
            percents = (5.0, 10.0, 15.0, 20.0, 25.0)
            spec = spec_of(DENSE, 4, 50.0, checkpoint_percents=percents, kept_checkpoints=kept)
            log = log_of(spec)
            for percent in percents:
                path = tmp_path / f"{percent:g}"
                form.save(path, (percent, percent + 1), some_state(form), spec, log)
            assert sorted((path.name for path in tmp_path.iterdir()), key=float) == names
            assert {path.name for path in log.files.paths.values()} == set(names)
            assert len(log.files.paths) == 2 * len(names)

    def test_of_another_model_or_optimizer_it_is_refused(self, keras: Any, tmp_path: Path) -> None:
        form, spec = form_of(DENSE), spec_of(DENSE, 4, 50.0)
        others = [NORMALIZED, replace(DENSE, optimizer=lambda: keras.optimizers.Adam())]
        for number, other in enumerate(others):
            path = tmp_path / f"{number}.npz"
            checkpoint_of(form_of(other), spec_of(other, 4, 50.0), path)
            with pytest.raises(UserError, match="another model or optimizer") as error:
                form.begin(replace(spec, fork_from=path), log_of(spec))
            assert str(path) in str(error.value)
            assert "\n" not in str(error.value)

    def test_beyond_the_end_it_is_refused(self, tmp_path: Path) -> None:
        form, spec = form_of(DENSE), spec_of(DENSE, 4, 100.0)
        path = checkpoint_of(form, spec, tmp_path / "late.npz", worker_step=404)
        with pytest.raises(UserError):
            form.begin(replace(spec, fork_from=path), log_of(spec))


def test_a_restored_model_computes_what_the_flat_one_does() -> None:
    form = form_of(NORMALIZED)
    state = some_state(form)
    spec = spec_of(NORMALIZED, 4, 50.0)
    model = restored_model(NORMALIZED, form.checkpoint(state, spec, log_of(spec)))
    inputs = digits_data().test_inputs[:5]
    function = ModelFunction(NORMALIZED, digits_data())
    expected = function.predict(state.parameters, state.statistics, inputs)
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-5)
