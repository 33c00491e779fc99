"""Rows of embeddings in traced functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from syncswitch.trainers.job.embeddings import EmbeddingTable, Find
from syncswitch.trainers.model.tensorflow_api import tf


class EmbeddingRows(NamedTuple):
    """Some rows of an embedding.

    Attributes:
        ids: Their numbers, int64, ascending.
        values: Their values, shape [U, width].
    """

    ids: Any
    values: Any


def specs_of(table: EmbeddingTable) -> EmbeddingRows:
    """Shapes and types of any number of rows of an embedding."""
    return EmbeddingRows(tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, table.width]))


def among(rows: Sequence[EmbeddingRows]) -> Find:
    """A function that finds rows among these."""

    def find(table: int, ids: Any) -> Any:
        there = rows[table]
        places = tf.searchsorted(there.ids, tf.reshape(ids, [-1]))
        return tf.gather(there.values, tf.reshape(places, tf.shape(ids)))

    return find


def any_rows(embeddings: Sequence[EmbeddingTable]) -> Find:
    """A function that finds small numbers that differ, even where embeddings begin with zeros."""

    def find(table: int, ids: Any) -> Any:
        shape = tf.concat([tf.shape(ids), [embeddings[table].width]], 0)
        return 0.05 * tf.random.stateless_normal(shape, [table, 1])

    return find


class Asking:
    """Notes the rows for which embeddings are asked.

    Args:
        embeddings: The embeddings.
        answer: Scalar tensor, which every value of every row is.
    """

    def __init__(self, embeddings: Sequence[EmbeddingTable], answer: Any) -> None:
        self._embeddings = embeddings
        self._answer = answer
        self._asked: list[list[Any]] = [[] for _ in embeddings]

    def find(self, table: int, ids: Any) -> Any:
        """Answers for an embedding; see `Find`."""
        self._asked[table].append(tf.reshape(ids, [-1]))
        shape = tf.concat([tf.shape(ids), [self._embeddings[table].width]], 0)
        return tf.fill(shape, self._answer)

    @property
    def ids(self) -> list[Any]:
        """Numbers of the rows of each embedding, int64, as often as they were asked for."""
        return [tf.concat([tf.zeros([0], tf.int64), *one], 0) for one in self._asked]
