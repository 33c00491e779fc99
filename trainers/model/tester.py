"""Test accuracy of flat parameters."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from syncswitch.storage.errors import SyncSwitchError, one_line
from syncswitch.storage.metrics import is_at_chance
from syncswitch.storage.records.trial import TrialRecord
from syncswitch.trainers.job.data import AnyData, chance_accuracy, class_numbers, has_accuracy
from syncswitch.trainers.job.keras_parts import (
    build_metric,
    further_workloads,
    loss_settings,
    metric_of,
)
from syncswitch.trainers.job.sources import ArraySource
from syncswitch.trainers.job.workload import LOSS_METRIC, Workload
from syncswitch.trainers.model.batches import parsed, transformed
from syncswitch.trainers.model.embeddings import Ids, checked_ids
from syncswitch.trainers.model.feed import Tensors, in_order
from syncswitch.trainers.model.function import EmbeddingRows, ModelFunction, total_loss
from syncswitch.trainers.model.tensorflow_api import tf

_LOG = logging.getLogger(__name__)

_BATCH = 512
_ROUNDING = 1e-5
_LEAST_LEARNED = 0.1
_LARGEST_CHANCE = 0.6


class ModelTester:
    """Computes the test accuracy of flat parameters on one device; traced once."""

    def __init__(
        self, function: ModelFunction, workload: Workload, data: AnyData, device: str
    ) -> None:
        self._function = function
        self._workload = workload
        self._data = data
        self._device = device
        with tf.device(device):
            # Examples in memory stay there; others are read anew for each test.
            is_held = isinstance(data.test, ArraySource)
            # A loss may depend on the size of batches, which `fit` tests with those of its steps.
            wanted = (workload.metric, *workload.further_metrics)
            self._batch = workload.batch_size if LOSS_METRIC in wanted else _BATCH
            self._held = list(in_order(data.test, self._batch)) if is_held else None
            self.ids = self._wanted_rows()
            self._metric = self._build_metric(workload)
            self._further = {
                name: self._build_metric(measuring)
                for name, measuring in further_workloads(workload).items()
            }
            self.further: tuple[tuple[str, float], ...] = ()
            self.tested: Sequence[Any] = ()
            self._described = metric_of(workload)
            self._update = tf.function(self._traced_update, autograph=False, reduce_retracing=True)
            if data.test.examples > self._batch and data.test.examples % self._batch:
                # Traced once for all batches, also the last one, which is smaller.
                parameters, statistics, *values = self._zeros()
                first = next(iter(self._batches()))
                specs = [tf.TensorSpec([None, *one.shape[1:]], one.dtype) for one in first]
                rows = self._rows(values)
                self._update.get_concrete_function(parameters, statistics, rows, *specs)
        self.accuracy(*self._zeros())
        self._chance = self._read_chance() if workload.metric is None else None

    def accuracy(self, *model: Any) -> float:
        """Tests parameters, statistics, and the rows of `ids`; NaN if they are not finite."""
        with tf.device(self._device):
            self.tested = vectors = list(map(tf.convert_to_tensor, model))
            if not all(bool(tf.reduce_all(tf.math.is_finite(one))) for one in vectors):
                return math.nan
            parameters, statistics, *values = vectors
            rows = self._rows(values)
            self._metric.reset_state()
            for metric in self._further.values():
                metric.reset_state()
            for examples in self._batches():
                self._update(parameters, statistics, rows, *examples)
            further = ((name, self._value(metric)) for name, metric in self._further.items())
            # They decide nothing: those that are not finite are left out.
            self.further = tuple((name, value) for name, value in further if math.isfinite(value))
            return self._checked(self._value(self._metric))

    def batch(self) -> tuple[Any, Any]:
        """Makes inputs and labels of the first batch of the test set."""
        return self._test_batch(next(iter(self._batches())))

    def _value(self, metric: Any) -> float:
        result = np.asarray(metric.result())
        if result.size != 1:
            raise self._workload.error(
                f"the metric {metric.name!r} gives {result.size} values; give one that is a single"
                " number"
            )
        return float(result.item())

    def _checked(self, value: float) -> float:
        """Returns a metric's value as an accuracy; NaN if it is not finite or out of its range."""
        accuracy = self._described.accuracy(value)
        possible = self._described.limited(accuracy)
        is_worse = accuracy < possible and self._workload.metric_range is not None
        # A sum in float32 may be wrong in its last bits.
        is_outside = abs(accuracy - possible) > _ROUNDING
        if not math.isfinite(value) or (is_worse and is_outside):
            return math.nan
        if is_outside:
            raise self._workload.error(
                f"the metric {self._metric.name!r} gives {value:.4g}, and its range is"
                f" {self._described.range_text}; give its range as metric_range, and"
                " metric_goal='min' if less is better"
            )
        return possible

    def is_chance(self, accuracy: float) -> bool:
        """Returns True if this accuracy is no better than guessing, as far as that is known."""
        chance = self._chance
        return chance is not None and is_at_chance(accuracy, chance, self._data.test.examples)

    def warn_if_hardly_above_chance(self, record: TrialRecord) -> None:
        """Warns if the first protocol alone has learned next to nothing, so that no policy helps.

        That is less than a tenth of the way from guessing to perfection.
        """
        chance, identity = self._chance, record.spec.identity
        if chance is None or record.spec.switch_percent < 100 or record.diverged:
            return
        accuracy = record.converged_accuracy
        if accuracy < chance + _LEAST_LEARNED * (1 - chance):
            _LOG.warning(
                "%s alone reached an accuracy of %.4f, where guessing the most frequent class gives"
                " %.4f: the job learns next to nothing on %d workers, and a search would as well;"
                " check learning_rate, which is multiplied by the workers (up to largest_scaling)",
                identity.first_protocol.upper(),
                accuracy,
                chance,
                identity.workers,
            )

    def _batches(self) -> Iterable[Tensors]:
        if self._held is not None:
            return self._held
        return in_order(self._data.test, self._batch)

    def _read_chance(self) -> float | None:
        """Reads how good guessing is; None unless there is one output of classes."""
        classes = []
        for rows in self._batches():
            labels = parsed(self._data, self._data.test, rows)[1]
            is_plain = not isinstance(labels, tuple | dict | list)
            classes.append(class_numbers(np.asarray(labels)) if is_plain else None)
        chance = chance_accuracy(classes)
        # If one class has a larger share of the test set, a good model may be at that share.
        return chance if chance is not None and chance <= _LARGEST_CHANCE else None

    def _traced_update(self, parameters: Any, statistics: Any, rows: Any, *examples: Any) -> None:
        inputs, labels = self._test_batch(examples)
        outputs, losses = self._function.tested(parameters, statistics, inputs, rows)
        metrics = (self._metric, *self._further.values())
        is_whole_loss = [
            self._workload.metric_output is None and hasattr(metric, "add") for metric in metrics
        ]
        told = None if all(is_whole_loss) else self._function.outputs.decisive(labels, outputs)
        for metric, is_loss in zip(metrics, is_whole_loss, strict=True):
            if is_loss:
                loss = total_loss(self._function.outputs.loss(labels, outputs), losses)
                metric.add(loss, outputs)
            elif told is not None:
                self._tell(metric, told)

    def _tell(self, metric: Any, told: Any) -> None:
        try:
            metric.update_state(told.labels, told.outputs, sample_weight=told.weights)
        except SyncSwitchError:
            raise
        except Exception as error:
            problem = f"the metric {metric.name!r} failed with {one_line(error)}"
            if "scope name" in str(error):
                problem = f"the metric is called {metric.name!r}; give letters, digits and _ alone"
            raise self._workload.error(problem) from error

    def _wanted_rows(self) -> list[Ids]:
        embeddings = self._function.embeddings
        if not embeddings:
            return []

        def asked(*examples: Any) -> Any:
            inputs, _ = self._test_batch(examples)
            return self._function.ids(inputs, tf.constant(0.0), training=False)

        traced = tf.function(asked, autograph=False, reduce_retracing=True)
        ids = [np.zeros(0, np.int64) for _ in embeddings]
        for examples in self._batches():
            ids = list(map(np.union1d, ids, traced(*examples)))
        try:
            return list(map(checked_ids, embeddings, ids))
        except ValueError as error:
            raise self._workload.error(str(error)) from error

    def _build_metric(self, workload: Workload) -> Any:
        from keras import metrics

        metric = build_metric(workload)
        if metric is not None:
            return metric
        inputs, labels = self.batch()
        parameters, statistics, *values = self._zeros()
        outputs = self._function.predict(parameters, statistics, inputs, self._rows(values))
        labels, outputs, _, loss = self._function.outputs.decisive(labels, outputs)
        if not has_accuracy(np.asarray(labels), outputs.shape):
            which = "that are neither classes nor one-hot"
            if outputs.shape[-1] == 1:
                which = "other than 0 and 1, for one output,"
            raise self._workload.error(
                f"labels {which} have no accuracy; give a metric, such as 'mae', or 'loss' for the"
                " loss of the evaluations"
            )
        if outputs.shape[-1] == 1:
            from_logits = loss_settings(loss).get("from_logits", False)
            return metrics.BinaryAccuracy(threshold=0.0 if from_logits else 0.5)
        if labels.shape.rank > 1 and labels.shape[-1] == outputs.shape[-1]:
            return metrics.CategoricalAccuracy()
        return metrics.SparseCategoricalAccuracy()

    def _test_batch(self, rows: Sequence[Any]) -> tuple[Any, Any]:
        inputs, labels = parsed(self._data, self._data.test, rows)
        if self._data.test_transform is None:
            return inputs, labels
        return transformed(self._data.test_transform, inputs, labels)

    def _rows(self, values: Iterable[Any]) -> list[EmbeddingRows]:
        return list(map(EmbeddingRows, map(tf.constant, self.ids), values))

    def _zeros(self) -> list[Any]:
        function = self._function
        wanted = zip(self.ids, function.embeddings, strict=True)
        rows = [tf.zeros([len(ids), table.width]) for ids, table in wanted]
        return [tf.zeros(function.parameters.size), tf.zeros(function.statistics.size), *rows]
