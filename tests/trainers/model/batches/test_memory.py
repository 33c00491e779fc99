"""How much memory it takes to read more than would fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import parquet

from syncswitch.trainers.job.sources.parquet import ParquetFiles
from syncswitch.trainers.model.batches.feed import ReadFeed

BLOCKS, EXAMPLES, WIDTH = 48, 128, 1 << 13
BLOCK_BYTES = EXAMPLES * WIDTH * 4


def test_an_epoch_needs_the_memory_of_a_few_blocks(tmp_path: Path) -> None:
    form = pa.schema({"x": pa.list_(pa.float32(), WIDTH)})
    with parquet.ParquetWriter(tmp_path / "large", form, compression="none") as writer:
        values = np.arange(EXAMPLES * WIDTH, dtype=np.float32)
        for block in range(BLOCKS):
            rows = pa.FixedSizeListArray.from_arrays(pa.array(values + block), WIDTH)
            writer.write_table(pa.table([rows], form))
    feed = ReadFeed(ParquetFiles(tmp_path / "large", ["x"], blocks_in_window=2), 32)
    process, used = psutil.Process(), []
    for step in range(BLOCKS * EXAMPLES // 32):
        feed.rows(step, 1)
        if step % 8 == 0:
            used.append(process.memory_info().rss)
    feed.close()
    # Two windows, one more block under way, and what pyarrow reads it from.
    assert max(used) - used[0] < 12 * BLOCK_BYTES < BLOCKS * BLOCK_BYTES / 3
