"""Examples out of `tf.data` pipelines, in pieces."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.blocks import BlockSource
from syncswitch.trainers.job.sources.source import Rows

_LOG = logging.getLogger(__name__)

Pipeline = Callable[[Any], Any]
"""From the number of a piece, an int64 tensor, to its `tf.data.Dataset` of single examples."""


class PipelinePieces(BlockSource):
    """What a `tf.data` pipeline yields for each of many pieces, such as files.

    A pipeline cannot go to its hundredth example without the 99 before it. So the data come in
    pieces, each a pipeline of its own, that a worker reads as a whole when the first example of it
    is wanted. Each has to yield the same examples in the same order whenever it is read: no
    `repeat`, and no `shuffle` or random numbers without a seed. The order of pieces and of examples
    is shuffled afterwards; random augmentation belongs into the data's `transform`.

    Args:
        pieces: How many.
        pipeline: Makes the pipeline of a piece, with TensorFlow's operations alone where workers
            are processes: it is traced once, and sent to them.
        sizes: Examples of each piece, or one number for all; None to read all once and count.
        blocks_in_window: So many pieces are mixed with each other, and fit into memory twice.
    """

    def __init__(
        self,
        pieces: int,
        pipeline: Pipeline,
        sizes: int | Sequence[int] | None = None,
        blocks_in_window: int = 4,
    ) -> None:
        if pieces < 1:
            raise WorkloadError(f"data: pieces is {pieces}; give 1 or more")
        self.pipeline = pipeline
        if sizes is None:
            _LOG.warning("data: counting the examples of %d pieces; give sizes to spare it", pieces)
            sizes = [self._count(piece) for piece in range(pieces)]
        given = [sizes] * pieces if isinstance(sizes, int) else list(sizes)
        if len(given) != pieces or min(given) < 0 or not sum(given):
            raise WorkloadError(
                f"data: sizes are {sizes} for {pieces} pieces; give a number of examples for each"
            )
        super().__init__(given, blocks_in_window)

    @override
    def _read_block(self, block: int) -> Rows:
        size = self._sizes[block]
        # One more, so that a piece that has become longer is noticed.
        read = self._dataset(block).batch(size + 1, num_parallel_calls=1).take(1)
        for found in read.as_numpy_iterator():
            rows = found if isinstance(found, tuple) else (found,)
            for one in rows:
                if isinstance(one, dict | tuple):
                    raise WorkloadError(
                        f"data: the pipeline of piece {block} yields a {type(one).__name__} among"
                        " its arrays; give examples such as (input, label), each one array"
                    )
            return rows
        raise WorkloadError(f"data: the pipeline of piece {block} yields nothing; {size:,} awaited")

    def _count(self, piece: int) -> int:
        dataset = self._dataset(piece)
        if int(dataset.cardinality()) == -1:
            raise WorkloadError(
                f"data: the pipeline of piece {piece} is endless; leave out repeat(), syncswitch"
                " counts epochs"
            )
        return int(dataset.reduce(0, lambda count, *_: count + 1))

    def _dataset(self, piece: int) -> Any:
        import tensorflow as tf

        return self.pipeline(tf.constant(piece, tf.int64))
