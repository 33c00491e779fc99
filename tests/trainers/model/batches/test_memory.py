"""How much memory it takes to read more than would fit."""

from __future__ import annotations

import numpy as np
import psutil
from typing_extensions import override

from syncswitch.trainers.job.sources.pipelines import BlockSource
from syncswitch.trainers.job.sources.source import Rows
from syncswitch.trainers.model.batches.feed import ReadFeed

BLOCKS, EXAMPLES, WIDTH = 48, 128, 1 << 13
BLOCK_BYTES = EXAMPLES * WIDTH * 4


class _Numbers(BlockSource):
    @override
    def _read_block(self, block: int) -> Rows:
        return (np.full((EXAMPLES, WIDTH), block, np.float32),)


def test_an_epoch_needs_the_memory_of_a_few_blocks() -> None:
    feed = ReadFeed(_Numbers([EXAMPLES] * BLOCKS, blocks_in_window=2), 32)
    process, used = psutil.Process(), []
    for step in range(BLOCKS * EXAMPLES // 32):
        feed.rows(step, 1)
        if step % 8 == 0:
            used.append(process.memory_info().rss)
    feed.close()
    # Two windows, and one more block under way.
    assert max(used) - used[0] < 8 * BLOCK_BYTES < BLOCKS * BLOCK_BYTES / 3
