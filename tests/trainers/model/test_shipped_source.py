from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.loading import import_file
from syncswitch.trainers.job.sources.pipelines import PipelinePieces
from syncswitch.trainers.job.sources.source import Array, ArraySource, Rows, Source
from syncswitch.trainers.model.shipped_source import ShippedSource
from tests.trainers.jobs import CONSTANT
from tests.warm_program import run_code


def shipped(source: Source) -> ShippedSource:
    found: ShippedSource = pickle.loads(pickle.dumps(ShippedSource.of(source, CONSTANT)))
    return found


def test_arrays_arrive() -> None:
    rows = np.arange(12.0).reshape(6, 2), np.array(["a", "b"] * 3, object)
    restored = shipped(ArraySource(rows)).restored()
    for found, given in zip(restored.read(np.arange(6)), rows, strict=True):
        np.testing.assert_array_equal(found, given)


def piece(number: Any) -> Any:
    import tensorflow as tf

    table = tf.constant([10, 20, 30], tf.int64)
    rows = tf.data.Dataset.range(2).map(lambda one: (one + table[number], [number]))
    return rows.shuffle(9, seed=1).batch(2).prefetch(1).unbatch()


def test_a_pipeline_arrives_as_its_graph() -> None:
    source = PipelinePieces(3, piece, 2)
    restored = shipped(source).restored()
    for found, given in zip(*(one.read(np.arange(6)) for one in (restored, source)), strict=True):
        np.testing.assert_array_equal(found, given)
    assert source.pipeline is piece


def of_python(number: Any) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.range(2).map(lambda one: tf.py_function(float, [one], tf.float32))


def generated(number: Any) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_generator(lambda: iter(range(2)), tf.int64)


@pytest.mark.parametrize("pipeline", [of_python, generated])
def test_python_in_a_pipeline_is_refused(pipeline: Callable[[Any], Any]) -> None:
    source = PipelinePieces(3, pipeline, 2)
    with pytest.raises(WorkloadError, match=r"or pipeline uses a function of Python .* in-process"):
        ShippedSource.of(source, CONSTANT)


class Unpicklable(Source):
    examples = 3

    def __init__(self) -> None:
        self.function = lambda: None

    def read(self, numbers: Array) -> Rows:
        raise NotImplementedError


def test_what_cannot_be_pickled_is_refused_in_one_line() -> None:
    words = r"^workload 'constant-gradient': its source Unpicklable cannot be pickled"
    with pytest.raises(WorkloadError, match=words) as error:
        ShippedSource.of(Unpicklable(), CONSTANT)
    assert "\n" not in str(error.value)


OWN = """
from syncswitch.trainers import Source

class Own(Source):
    examples = 3

    def read(self, numbers):
        return numbers, numbers + 1
"""


def test_a_class_in_a_file_is_imported_from_there(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    sent = pickle.dumps(ShippedSource.of(import_file(tmp_path / "own.py").Own(), CONSTANT))
    (tmp_path / "sent").write_bytes(sent)
    program = (
        "import pickle, numpy as np\n"
        "print(*pickle.load(open('sent', 'rb')).restored().read(np.array([2])))"
    )
    result = run_code(program, folder=tmp_path)
    assert result.stdout.strip() == "[2] [3]", result.stderr
    (tmp_path / "own.py").unlink()
    result = run_code(program, folder=tmp_path)
    assert "cannot be imported where a worker is" in result.stderr.splitlines()[-1]
