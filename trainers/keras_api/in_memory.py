"""A compiled Keras model of this process, whose training leaves its values in it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

import keras
import numpy as np

from syncswitch.storage.errors import FatalError
from syncswitch.storage.files import OwnedFolder
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.workload import LOSS_METRIC, Workload
from syncswitch.trainers.keras_api.arguments import check_fields, watched_metrics
from syncswitch.trainers.keras_api.from_compiled import compiled_metrics, from_compiled, metric_name
from syncswitch.trainers.model.optimizer import assign
from syncswitch.trainers.model.state import read_checkpoint, restored_model
from syncswitch.trainers.run.callbacks import logged_name, usable_callbacks
from syncswitch.trainers.trainer import Observer

_TRAINED: WeakSet[Any] = WeakSet()
"""Models that runs have trained."""


@dataclass(frozen=True)
class ModelInMemory:
    """A model that is trained where it is, as a workload.

    Attributes:
        model: The model, compiled.
        workload: The training, as `from_compiled` makes it.
        shown_steps: Worker-steps of an epoch, after which callbacks see the model; None without
            any.
    """

    model: Any
    workload: Workload
    shown_steps: int | None

    @classmethod
    def of(
        cls,
        model: Any,
        x: Any,
        y: Any,
        epochs: int | None,
        callbacks: Sequence[Any],
        job: Mapping[str, Any],
    ) -> ModelInMemory:
        """Takes the arguments of `fit`, and builds the model once they are looked at."""
        check_fields(job, inspect.signature(from_compiled).parameters)
        rate_setting = keras.callbacks.LearningRateScheduler
        told = usable_callbacks(
            [one for one in callbacks if not isinstance(one, rate_setting)], "fit", has_model=True
        )
        is_function = not isinstance(model, keras.Model) and callable(model)
        built = cache(model if is_function else lambda: model)
        workload = from_compiled(
            built,
            x,
            y,
            **{
                "epochs": epochs or 1,
                "callbacks": [one for one in callbacks if isinstance(one, rate_setting)],
                # The model is in memory anyway.
                "least_embedding_values": None,
                **job,
            },
        )
        # Nobody else needs its values meanwhile: a run computes with values of its own.
        model, workload = built(), replace(workload, model=built)
        if not told:
            return cls(model, workload, None)
        steps = math.ceil(workload.total_worker_steps / (epochs or 1))
        return cls(model, _told(workload, told, model), steps)

    @property
    def is_trained(self) -> bool:
        """Whether its values come from a training, by Keras or by a run."""
        return self.model in _TRAINED or int(getattr(self.model.optimizer, "iterations", 0)) > 0

    def open(self, workers: int) -> ClusterTrainer:
        """Starts workers that are threads of this process."""
        shown = None if self.shown_steps is None else (self.model, self.shown_steps)
        return ClusterTrainer(self.workload, workers, shown=shown)

    def train(
        self, spec: TrialSpec, observer: Observer | None
    ) -> tuple[FitRecord, FatalError | None]:
        """Trains, and leaves the trained values in the model.

        A run that diverges, or that the observer stops, leaves it as it was. The error is that the
        values of a whole run are lost, so that there are none to leave.
        """
        is_shown, lost = self.shown_steps is not None, None
        with OwnedFolder("syncswitch-fit-") as folder:
            own = replace(
                spec,
                checkpoint_percents=(100.0,),
                checkpoint_directory=folder,
                spare_directories=(Path.cwd(),),
            )
            before = [np.asarray(one) for one in self.model.weights] if is_shown else []
            with self.open(spec.identity.workers) as trainer:
                record = trainer.train(own, observer)
            has_stopped = is_shown and self.model.stop_training
            is_whole = not record.diverged and (has_stopped or not record.stopped_early)
            if is_shown and not is_whole:
                assign(self.model.weights, before)
            elif is_whole and not is_shown:
                path = record.checkpoints.get(100.0)
                if path is None:
                    lost = FatalError(f"the trained values are lost: {record.events[-1].reason}")
                else:
                    restored_model(self.workload, read_checkpoint(path))
        if is_whole:
            _TRAINED.add(self.model)
        chosen = replace(spec, identity=record.spec.identity)
        measured = replace(record, spec=chosen, checkpoints={})
        return FitRecord.of(measured, self.model, logged_name(self.workload)), lost


def _told(workload: Workload, callbacks: list[Any], model: Any) -> Workload:
    """Returns the workload with these callbacks, and the metrics that they watch."""
    metric = logged_name(workload)
    own = [(one, metric_name(one)) for one in workload.further_metrics]
    measured = {**compiled_metrics(model), LOSS_METRIC: LOSS_METRIC}
    measured.update({name: one for one, name in own})
    wanted = watched_metrics(callbacks, measured, metric)
    further = (*workload.further_metrics, *(one for one in wanted if one not in dict(own)))
    return replace(workload, callbacks=lambda: callbacks, further_metrics=further)


@dataclass(frozen=True, slots=True)
class FitRecord(TrialRecord):
    """What `fit` returns.

    Attributes:
        model: The trained model.
        logged: Name of the metric in the logs, without `val_`.
    """

    model: Any = field(default=None, repr=False, compare=False)
    logged: str = "accuracy"

    @classmethod
    def of(cls, record: TrialRecord, model: Any, logged: str) -> FitRecord:
        """Makes it of a run."""
        measured = {one.name: getattr(record, one.name) for one in fields(record)}
        return cls(**measured, model=model, logged=logged)

    @property
    def history(self) -> dict[str, list[float]]:
        """The evaluations, as the `history` of what Keras' `fit` returns."""
        metric = self.spec.identity.metric
        found: dict[str, list[float]] = {"loss": [], f"val_{self.logged}": []}
        for one in self.evaluations:
            found["loss"].append(one.training_loss)
            found[f"val_{self.logged}"].append(metric.value(one.accuracy))
            for name, value in one.further:
                found.setdefault(f"val_{name}", []).append(value)
        return found

    @property
    def value_text(self) -> str:
        """The metric at the end, with its unit."""
        return self.spec.identity.metric.text(self.final_accuracy)
