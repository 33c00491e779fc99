"""Rows of embeddings in traced functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from syncswitch.trainers.job.embeddings import EmbeddingTable, Find
from syncswitch.trainers.model.tensorflow_api import tf


class EmbeddingRows(NamedTuple):
    """Some rows of an embedding: their numbers, int64, ascending, and values, shape [U, width]."""

    ids: Any
    values: Any


def specs_of(table: EmbeddingTable) -> EmbeddingRows:
    """Returns shapes and types of any number of rows of an embedding."""
    return EmbeddingRows(tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, table.width]))


def among(rows: Sequence[EmbeddingRows]) -> Find:
    """Returns a function that finds rows among these."""

    def find(table: int, ids: Any) -> Any:
        there = rows[table]
        places = tf.searchsorted(there.ids, tf.reshape(ids, [-1]))
        return tf.gather(there.values, tf.reshape(places, tf.shape(ids)))

    return find
