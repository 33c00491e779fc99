"""The same examples in files of each kind, and as data that are read from them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from syncswitch.trainers.job.data import Data, StreamedData
from syncswitch.trainers.job.sources.parquet import ParquetFiles
from syncswitch.trainers.job.sources.pipelines import PipelinePieces
from syncswitch.trainers.job.sources.records import CsvFiles, TFRecordFiles
from syncswitch.trainers.job.sources.source import Rows, Source
from tests.trainers.jobs import BRIEF, digits_data

PARTS = 3
FEATURES = 64


def flat_model() -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((FEATURES,)),
            layers.Dense(24, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def flat_data() -> Data:
    """The digits, each a row of 64 numbers."""
    digits = digits_data()
    return Data(
        digits.train_inputs.reshape(-1, FEATURES),
        digits.train_labels.astype(np.int64),
        digits.test_inputs.reshape(-1, FEATURES),
        digits.test_labels.astype(np.int64),
    )


FLAT = replace(BRIEF, name="flat-digits", model=flat_model, data=flat_data)


def streamed(kind: str, folder: Path) -> StreamedData:
    """The data of `FLAT`, written to files of this kind in a folder, and read from there."""
    data = flat_data()
    train = _source(kind, folder, "train", data.train_inputs, data.train_labels)
    test = _source(kind, folder, "test", data.test_inputs, data.test_labels)
    parses = {"tfrecord": parse_tfrecord, "csv": parse_csv}
    return StreamedData(train, test, parses.get(kind))


def parse_tfrecord(records: Any) -> tuple[Any, Any]:
    import tensorflow as tf

    form = {
        "inputs": tf.io.FixedLenFeature([FEATURES], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    found = tf.io.parse_example(records, form)
    return found["inputs"], found["label"]


def parse_csv(lines: Any) -> tuple[Any, Any]:
    import tensorflow as tf

    *columns, label = tf.io.decode_csv(lines, [[0.0]] * FEATURES + [[0]])
    return tf.stack(columns, -1), tf.cast(label, tf.int64)


def _source(kind: str, folder: Path, name: str, inputs: Any, labels: Any) -> Source:
    cuts = [len(labels) * part // PARTS for part in range(PARTS + 1)]
    for part, (start, stop) in enumerate(pairwise(cuts)):
        path = folder / f"{name}-{part}.{kind}"
        WRITERS.get(kind, write_tfrecord)(path, (inputs[start:stop], labels[start:stop]))
    pattern = str(folder / f"{name}-*.{kind}")
    if kind == "tfrecord":
        return TFRecordFiles(pattern)
    if kind == "csv":
        return CsvFiles(pattern)
    if kind == "parquet":
        # All in one window, so that the order is that of arrays.
        return ParquetFiles(pattern, ["inputs", "label"], blocks_in_window=99)
    sizes = [stop - start for start, stop in pairwise(cuts)]
    return PipelinePieces(PARTS, pipeline_of(folder, name), sizes, blocks_in_window=PARTS)


def pipeline_of(folder: Path, name: str) -> Any:
    def pipeline(piece: Any) -> Any:
        import tensorflow as tf

        path = tf.strings.join([f"{folder}/{name}-", tf.strings.as_string(piece), ".pipeline"])
        return tf.data.TFRecordDataset(path).batch(64).map(parse_tfrecord).unbatch()

    return pipeline


def write_tfrecord(path: Path, rows: Rows) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for inputs, label in zip(*rows, strict=True):
            features = {
                "inputs": tf.train.Feature(float_list=tf.train.FloatList(value=inputs)),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def write_csv(path: Path, rows: Rows) -> None:
    names = [*(f"x{number}" for number in range(FEATURES)), "label"]
    lines = [",".join(map(repr, [*map(float, x), int(y)])) for x, y in zip(*rows, strict=True)]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")


def write_parquet(path: Path, rows: Rows) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    inputs, labels = rows
    table = pa.table({"label": labels, "inputs": list(inputs), "unused": labels})
    parquet.write_table(table, path, row_group_size=100)


WRITERS = {"tfrecord": write_tfrecord, "csv": write_csv, "parquet": write_parquet}
