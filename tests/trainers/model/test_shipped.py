from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.job.loading import import_file
from syncswitch.trainers.job.pipelines import Leaf, PipelinePieces
from syncswitch.trainers.job.sources import Array, ArraySource, Rows, Source
from syncswitch.trainers.model.shipped import ShippedSource
from tests.failing import fails
from tests.trainers.jobs import CONSTANT
from tests.trainers.shipping import shipped
from tests.warm_program import run_code


def test_arrays_arrive() -> None:
    texts = np.array(["a", b"b"] * 3, object)
    rows = np.arange(12.0).reshape(6, 2), texts, np.arange(6, dtype=np.int8), np.ones(6, bool)
    restored = shipped(ArraySource(rows, (Leaf(),)))
    for found, given in zip(restored.read(np.arange(6)), rows, strict=True):
        np.testing.assert_array_equal(found, given)
        assert found.dtype == given.dtype


def piece(number: Any) -> Any:
    import tensorflow as tf

    table = tf.constant([10, 20, 30], tf.int64)
    rows = tf.data.Dataset.range(2).map(lambda one: (one + table[number], {"n": [number]}))
    return rows.shuffle(9, seed=1).batch(2).prefetch(1).unbatch()


def test_a_pipeline_arrives_as_its_graph() -> None:
    source = PipelinePieces(3, piece, 2)
    assert source.form
    restored = shipped(source)
    for found, given in zip(*(one.read(np.arange(6)) for one in (restored, source)), strict=True):
        np.testing.assert_array_equal(found, given)
    assert source.pipeline is piece


def test_python_in_a_pipeline_is_refused() -> None:
    import tensorflow as tf

    of = tf.data.Dataset
    for pipeline in (
        lambda _: of.range(2).map(lambda one: tf.py_function(float, [one], tf.float32)),
        lambda _: of.from_generator(lambda: iter(range(2)), tf.int64),
    ):
        words = "or pipeline uses a function of Python .*'in-process'"
        with fails("workload-unsuitable", words):
            ShippedSource.of(PipelinePieces(3, pipeline, 2), CONSTANT)


class Holder(Source):
    examples = 3

    def __init__(self, held: Any) -> None:
        self.held = held

    def read(self, numbers: Array) -> Rows:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        (open, "builtin_function_or_method"),
        ({"a": [1, (2, set())]}, "set"),
        ({(1, 2): 3}, "tuple"),
        (np.array([{}, 1, Path()], object), "PosixPath"),
    ],
)
def test_what_is_no_data_is_refused_in_one_line(held: Any, kind: str) -> None:
    words = rf"^workload 'constant-gradient': its source Holder cannot be sent .* holds a {kind};"
    with fails("workload-unsuitable", words) as error:
        ShippedSource.of(Holder(held), CONSTANT)
    assert "\n" not in str(error.value)


OWN = """
import numpy as np
from syncswitch import Source

class Own(Source):
    examples = 3

    def __init__(self, added):
        self.added = {"by": np.float32(added), "to": [np.arange(3)]}

    def read(self, numbers):
        return numbers, self.added["to"][0][numbers] + self.added["by"]

print("imported")
"""
RESTORED = """
import sys, msgspec, numpy as np
from pathlib import Path
from syncswitch.trainers.cluster.exchange.wire import Message
from syncswitch.trainers.model.shipped import ShippedSource
content, beside = msgspec.msgpack.decode(Path("sent").read_bytes())
arrays = [memoryview(bytearray(one)) for one in beside]
found = Message(memoryview(content), arrays).read(ShippedSource)
print(*found.restored({reference}).read(np.array([2])))
"""


def test_a_class_of_ones_own_comes_with_the_workload_of_the_worker_alone(tmp_path: Path) -> None:
    """Nobody who is connected to it says what it imports."""
    import msgspec

    from syncswitch.trainers.cluster.exchange.wire import packed

    (tmp_path / "own.py").write_text(OWN)
    content, beside = packed(ShippedSource.of(import_file(tmp_path / "own.py").Own(4), CONSTANT))
    (tmp_path / "sent").write_bytes(msgspec.msgpack.encode((content, beside)))
    result = run_code(RESTORED.format(reference="'own.py:workload'"), folder=tmp_path)
    assert result.stdout.split() == ["imported", "[2]", "[6.]"], result.stderr
    result = run_code(RESTORED.format(reference=None), folder=tmp_path)
    assert result.stdout == ""
    assert "the class Own of the source is not where a worker is" in result.stderr.splitlines()[-1]


def test_a_module_is_not_imported_because_somebody_names_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    sources, here = "syncswitch.trainers.job.sources", "tests.trainers.model.test_shipped"
    for module, name in (
        ("this", "Path"),
        ("os", "Path"),
        (here, "Path"),
        (sources, "os.PathLike"),
    ):
        for reference in (None, "digits"):
            with fails("workload-unsuitable", f"class {name} of the source is not where"):
                ShippedSource(module, name, {}, {}, None).restored(reference)
    assert capfd.readouterr().out == ""
