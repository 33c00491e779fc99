"""Sources of examples on their way to other processes."""

from __future__ import annotations

import pickle
import sys
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.trainers.job.loading import import_file, is_file_module
from syncswitch.trainers.job.sources.pipelines import PipelinePieces
from syncswitch.trainers.job.sources.source import Array, Source
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.steps import ShippedFunction
from syncswitch.trainers.model.tensorflow_api import concrete, tf


@dataclass(frozen=True)
class _TracedPipeline:
    """The pipelines of a `PipelinePieces` without Python."""

    function: ShippedFunction
    element: Any

    @classmethod
    def of(cls, pieces: PipelinePieces, workload: Workload) -> _TracedPipeline:
        element = pieces.pipeline(tf.constant(0, tf.int64)).element_spec
        traced = concrete(
            lambda piece: tf.data.experimental.to_variant(pieces.pipeline(piece)),
            tf.TensorSpec([], tf.int64),
        )
        return cls(ShippedFunction.of(traced, workload), element)

    def restored(self) -> Any:
        function = self.function.restored()
        return lambda piece: tf.data.experimental.from_variant(function(piece)[0], self.element)


@dataclass(frozen=True)
class ShippedSource:
    """A source, pickled.

    Attributes:
        pickled: Without its arrays.
        arrays: Which travel beside it.
        file: Where its class is written, if that is no module that can be imported by its name.
    """

    pickled: bytes
    arrays: tuple[Array, ...]
    file: str | None

    @classmethod
    def of(cls, source: Source, workload: Workload) -> ShippedSource:
        """Packs a source of a workload.

        Raises:
            WorkloadError: It cannot be pickled.
        """
        sent = source
        if isinstance(source, PipelinePieces):
            sent = copy(source)
            sent.pipeline = _TracedPipeline.of(source, workload)  # type: ignore[assignment]
        module = sys.modules[type(source).__module__]
        arrays: list[pickle.PickleBuffer] = []
        try:
            pickled = pickle.dumps(sent, protocol=5, buffer_callback=arrays.append)
        except Exception as error:
            raise WorkloadError(
                f"workload {workload.name!r}: its source {type(source).__name__} cannot be pickled"
                f" for the workers ({one_line(error)}); leave open files and functions out of it"
            ) from error
        return cls(
            pickled,
            tuple(np.frombuffer(one.raw(), np.uint8) for one in arrays),
            module.__file__ if is_file_module(module.__name__) else None,
        )

    def restored(self) -> Source:
        """The source, for the process that it was sent to.

        Raises:
            WorkloadError: What it is made of is not here.
        """
        try:
            if self.file is not None:
                import_file(Path(self.file))
            source = pickle.loads(self.pickled, buffers=self.arrays)
        except (ImportError, AttributeError, OSError) as error:
            raise WorkloadError(
                f"data: the class of the source cannot be imported where a worker is"
                f" ({one_line(error)}); put it into a module that is installed there"
            ) from error
        assert isinstance(source, Source)
        if isinstance(source, PipelinePieces):
            source.pipeline = source.pipeline.restored()  # type: ignore[attr-defined]
        return source
