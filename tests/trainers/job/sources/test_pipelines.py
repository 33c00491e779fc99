from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.pipelines import PipelinePieces


def piece(number: Any) -> Any:
    """As many examples as its number says, each with it as its label."""
    import tensorflow as tf

    return tf.data.Dataset.range(number).map(lambda one: (one, number))


def test_pieces_are_read_as_wholes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        source = PipelinePieces(4, piece)
    assert "counting the examples of 4 pieces; give sizes to spare it" in caplog.text
    assert list(source.blocks) == [0, 1, 2, 3]
    inputs, labels = source.read(np.array([5, 0, 2]))
    assert (list(inputs), list(labels)) == ([2, 0, 1], [3, 1, 2])
    assert list(PipelinePieces(4, piece, [0, 1, 2, 3]).read(np.array([5]))[0]) == [2]


@pytest.mark.parametrize(
    ("number", "words"),
    [(2, "block 3 had 2 examples, and has 3 now"), (4, "block 3 had 4 .* has 3 now")],
)
def test_a_piece_has_to_have_the_size_that_was_said(number: int, words: str) -> None:
    source = PipelinePieces(4, piece, [0, 1, 2, number])
    with pytest.raises(WorkloadError, match=words):
        source.read(np.array([3]))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(WorkloadError, match="pieces is 0"):
        PipelinePieces(0, piece)
    for sizes in ([1, 2], [-1, 2, 3, 4], 0):
        with pytest.raises(WorkloadError, match=r"sizes are .* for 4 pieces"):
            PipelinePieces(4, piece, sizes)
    with pytest.raises(WorkloadError, match="piece 1 is endless; leave out repeat"):
        PipelinePieces(4, lambda number: piece(number).repeat())
    with pytest.raises(WorkloadError, match="blocks_in_window is 0"):
        PipelinePieces(4, piece, 1, blocks_in_window=0)
    with pytest.raises(WorkloadError, match="piece 0 yields nothing; 1 awaited"):
        PipelinePieces(4, piece, 1).read(np.array([0]))


def test_an_example_may_be_nested() -> None:
    import tensorflow as tf

    def pipeline(number: Any) -> Any:
        return tf.data.Dataset.range(number).map(lambda one: ({"b": one, "a": -one}, (one, one)))

    pieces = PipelinePieces(2, pipeline, [0, 1])
    assert [one.tolist() for one in pieces.read(np.array([0]))] == [[0]] * 4
    assert list(pieces.form[0]) == ["a", "b"]
    assert len(pieces.form[1]) == 2


def test_ragged_examples_are_refused() -> None:
    import tensorflow as tf

    def pipeline(number: Any) -> Any:
        rows = tf.data.Dataset.from_tensors(tf.ragged.constant([[1, 2], [3]]))
        return rows.map(lambda one: (one, 0))

    with pytest.raises(WorkloadError, match="piece 0 yields ragged tensors; pad them"):
        PipelinePieces(1, pipeline, [1]).read(np.array([0]))
