"""The same examples in files of each kind, and as data that are read from them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from syncswitch.trainers.job.data import Data, StreamedData
from syncswitch.trainers.job.pipelines import PipelinePieces
from syncswitch.trainers.job.sources import NumpyFiles, Rows, Source, TFRecordFiles
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
    return StreamedData(train, test, parse_tfrecord if kind == "tfrecord" else None)


def parse_tfrecord(records: Any) -> tuple[Any, Any]:
    import tensorflow as tf

    form = {
        "inputs": tf.io.FixedLenFeature([FEATURES], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    found = tf.io.parse_example(records, form)
    return found["inputs"], found["label"]


def _source(kind: str, folder: Path, name: str, inputs: Any, labels: Any) -> Source:
    if kind == "numpy":
        paths = [folder / f"{name}-{part}.npy" for part in ("inputs", "labels")]
        for path, array in zip(paths, (inputs, labels), strict=True):
            np.save(path, array)
        return NumpyFiles(*paths)
    cuts = [len(labels) * part // PARTS for part in range(PARTS + 1)]
    for part, (start, stop) in enumerate(pairwise(cuts)):
        path = folder / f"{name}-{part}.{kind}"
        write_tfrecord(path, (inputs[start:stop], labels[start:stop]))
    if kind == "tfrecord":
        return TFRecordFiles(folder / f"{name}-*.{kind}")
    # All in one window, so that the order is that of arrays.
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
