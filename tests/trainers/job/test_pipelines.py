from __future__ import annotations

import logging
import threading
from copy import copy
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.job.pipelines import PipelinePieces, read_pipeline
from syncswitch.trainers.job.sources import Rows
from tests.failing import fails
from tests.wording import Said


def piece(number: Any) -> Any:
    """As many examples as its number says, each with it as its label."""
    import tensorflow as tf

    return tf.data.Dataset.range(number).map(lambda one: (one, number))


def test_pieces_are_read_as_wholes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        source = PipelinePieces(4, piece)
    assert "counting the examples of 4 pieces; give sizes to avoid that" in caplog.text
    assert list(source.blocks) == [0, 1, 2, 3]
    inputs, labels = source.read(np.array([5, 0, 2]))
    assert (list(inputs), list(labels)) == ([2, 0, 1], [3, 1, 2])
    assert list(PipelinePieces(4, piece, [0, 1, 2, 3]).read(np.array([5]))[0]) == [2]


def ragged(number: Any) -> Any:
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensors(tf.ragged.constant([[1, 2], [3]]))
    return rows.map(lambda one: (one, 0))


def read(*given: Any) -> None:
    source = PipelinePieces(*given)
    source.read(np.arange(source.examples))


def test_what_cannot_be_is_refused(said: Said) -> None:
    for given in (
        (0, piece),
        *((4, piece, one) for one in ([1, 2], [-1, 2, 3, 4], 0)),
        (4, lambda number: piece(number).repeat()),
        (4, piece, 1, 0),
        (4, piece, 1),
        (1, ragged, [1]),
        # A piece has to have the size that was said.
        (4, piece, [0, 1, 2, 2]),
        (4, piece, [0, 1, 2, 4]),
    ):
        said.refusal("workload-unsuitable", read, *given)


def test_what_may_never_end_is_heard_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted are a thousand at a time."""
    monkeypatch.setattr("syncswitch.trainers.job.pipelines._PATIENCE_SECONDS", 0.0)
    read_pipeline(piece(3), "train")
    PipelinePieces(1, lambda _: piece(2_500))
    assert [line for line in caplog.messages if "still" in line] == [
        f"data: still reading the {called} examples so far; if it is endless, leave out repeat() or"
        " add take(EXAMPLES)"
        for called in ("train pipeline, 1", "pipeline of piece 0, 1,000")
    ]


def test_an_example_may_be_nested() -> None:
    import tensorflow as tf

    def pipeline(number: Any) -> Any:
        return tf.data.Dataset.range(number).map(lambda one: ({"b": one, "a": -one}, (one, one)))

    pieces = PipelinePieces(2, pipeline, [0, 1])
    assert [one.tolist() for one in pieces.read(np.array([0]))] == [[0]] * 4
    assert list(pieces.form[0]) == ["a", "b"]
    assert pieces.form is pieces.form, "to make a pipeline takes long"
    assert len(pieces.form[1]) == 2


class Counted(PipelinePieces):
    """Examples are their numbers; notes which pieces are read."""

    def __init__(self, *sizes: int, in_window: int = 1) -> None:
        super().__init__(len(sizes), print, sizes, in_window)
        self.asked: list[int] = []
        self.extra = 0

    def _read_piece(self, piece: int) -> Rows:
        self.asked.append(piece)
        first = sum(self._sizes[:piece])
        numbers = np.arange(first, first + self._sizes[piece] + self.extra)
        return numbers, np.stack([numbers, -numbers], -1)


def test_examples_are_those_that_were_asked_for() -> None:
    source = Counted(3, 0, 2, 4)
    wanted = np.array([8, 0, 4, 3, 8, 2])
    for one in (source, copy(source)):
        numbers, pairs = one.read(wanted)
        np.testing.assert_array_equal(numbers, wanted)
        np.testing.assert_array_equal(pairs, np.stack([wanted, -wanted], -1))
    assert source.examples == 9


def test_two_windows_are_kept() -> None:
    source = Counted(*[2] * 9, in_window=2)
    for number in (0, 2, 4, 6, 1, 3, 5, 7):
        source.read(np.array([number]))
    assert source.asked == [0, 1, 2, 3]
    source.read(np.array([8]))
    source.read(np.array([7, 0]))
    assert source.asked == [0, 1, 2, 3, 4, 0]


def test_what_is_prepared_is_read_once_by_whoever_asks() -> None:
    source = Counted(4, 4, in_window=2)
    source.prepare([1])
    threads = [threading.Thread(target=source.read, args=(np.array([5, 6]),)) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert source.asked == [1]


def test_a_block_that_is_not_what_it_was_is_refused_until_it_is() -> None:
    source = Counted(4)
    source.extra = 1
    with fails("workload-unsuitable", "piece 0 had 4 examples, and has 5 now"):
        source.read(np.array([1]))
    source.extra = 0
    assert source.read(np.array([1]))[0] == [1]
