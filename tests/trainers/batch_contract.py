"""The global batch after the switch, whatever trains; a test of each trainer inherits it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.schedule import checkpoint_path
from syncswitch.trainers.model.layout import ModelState
from tests.trainers.final import assert_bitwise_equal, final_state, train_to_end
from tests.trainers.jobs import BRIEF, CONSTANT, linear_model, normalized_model

MakeTrainer = Callable[..., Any]

EXAMPLES = 64


def counted_data() -> Data:
    """Each example moves a parameter of its own, and each as far."""
    inputs, labels = np.eye(EXAMPLES, dtype=np.float32), np.zeros((EXAMPLES, 1), np.float32)
    return Data(inputs, labels, inputs[:8], labels[:8])


# Parameters count how often their examples were seen, exactly and in any order of the updates.
COUNTING = replace(
    CONSTANT,
    name="counted examples",
    model=partial(linear_model, EXAMPLES),
    data=counted_data,
    data_set="counted",
    total_worker_steps=5 * EXAMPLES // CONSTANT.batch_size,
    learning_rate=2.0**-10,
    momentum=0.0,
    batch_after_switch="global",
)
W = COUNTING.total_worker_steps


def times_seen(state: ModelState) -> list[float]:
    seen: list[float] = ((1 - state.parameters) / 2.0**-10 * COUNTING.batch_size).tolist()
    return seen


class BatchContract:
    """Args of a subclass: `spec_of` and a fixture `make_trainer`, as in `TrainerContract`."""

    spec_of: ClassVar[Callable[..., TrialSpec]]

    def counted(
        self, make_trainer: MakeTrainer, folder: Path, workers: int, percent: float, **fields: Any
    ) -> tuple[TrialRecord, ModelState]:
        spec = self.spec_of(COUNTING, workers, percent, **fields)
        return train_to_end(make_trainer(COUNTING, workers), spec, folder)

    def test_a_gradient_after_the_switch_is_the_mean_of_a_round(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """A single one moves parameters, statistics and slots as a second round would."""
        job = replace(
            BRIEF,
            model=normalized_model,
            total_worker_steps=8,
            batch_after_switch="global",
            momentum_after_switch="same",
        )
        trainer = make_trainer(job, 4)
        found = final_state(trainer, self.spec_of(job, 4, 50.0), tmp_path / "asp")
        rounds = final_state(trainer, self.spec_of(job, 4, 100.0), tmp_path / "bsp")
        assert_bitwise_equal(found, rounds)
        assert found.updates == 2

    @pytest.mark.parametrize("protocol", ["asp", "ssp:1", "dssp:1-2"])
    def test_every_example_is_seen_as_often_as_ever(
        self, make_trainer: MakeTrainer, tmp_path: Path, protocol: str
    ) -> None:
        pair = ("bsp", protocol)
        record, state = self.counted(make_trainer, tmp_path, 4, 25.0, protocols=pair)
        assert times_seen(state) == [5.0] * EXAMPLES
        assert record.worker_steps == W
        assert state.updates == W // 4
        limit = {"asp": None, "ssp:1": 1, "dssp:1-2": 2}[protocol]
        assert limit is None or (record.phases[1].max_staleness or 0) <= 3 * (limit + 1)

    def test_the_last_gradient_is_of_what_is_left(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """3 workers: 39 worker-steps in rounds, 13 threes, and 2 at last."""
        record, state = self.counted(make_trainer, tmp_path, 3, 49.0)
        assert record.phases[0].end_worker_step == 39
        assert state.updates == 13 + 13 + 1
        np.testing.assert_allclose(times_seen(state), 5.0, atol=1e-3)

    def test_a_run_goes_on_from_its_checkpoint_after_the_switch(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """Forked or resumed, also where whole gradients do not end: at 50 of 80."""
        percents = (25.0, 62.5)
        _, whole = self.counted(make_trainer, tmp_path, 4, 25.0, checkpoint_percents=percents)
        spec = self.spec_of(COUNTING, 4, 25.0, checkpoint_directory=tmp_path)
        for percent, before in ((25.0, 5), (62.5, 5 + 8)):
            start = checkpoint_path(spec, percent, ".npz")
            folder = tmp_path / f"{percent}"
            record, forked = self.counted(make_trainer, folder, 4, 25.0, fork_from=start)
            assert [phase.protocol for phase in record.phases] == ["asp"]
            assert times_seen(forked) == times_seen(whole) == [5.0] * EXAMPLES
            # 30 are 7 fours and a two.
            rest = 15 if percent == 25.0 else 8
            assert forked.updates == before + rest
        checkpoint_path(spec, 100.0, ".npz").unlink()
        record, resumed = self.counted(
            make_trainer, tmp_path, 4, 25.0, checkpoint_percents=percents, resume=True
        )
        assert times_seen(resumed) == times_seen(whole)
        assert resumed.updates == whole.updates == 5 + 8 + 8
        assert record.worker_steps == W

    def test_one_worker_has_the_global_batch_already(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        same = self.spec_of(replace(COUNTING, batch_after_switch="same"), 1, 25.0)
        spec = self.spec_of(COUNTING, 1, 25.0)
        assert spec.identity.fingerprint == same.identity.fingerprint
        assert final_state(make_trainer(COUNTING, 1), spec, tmp_path).updates == W

    def test_after_a_switch_to_what_joins_gradients_or_models_it_is_refused(
        self, make_trainer: MakeTrainer
    ) -> None:
        same = replace(COUNTING, batch_after_switch="same")
        for pair in (("asp", "bsp"), ("bsp", "gba:1"), ("bsp", "local-sgd:2")):
            spec = self.spec_of(same, 4, 25.0, protocols=pair)
            with pytest.raises(UserError, match=f"batch_after_switch .* comes {pair[1]!r}; switch"):
                make_trainer(COUNTING, 4).train(spec)
