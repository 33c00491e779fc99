"""A residual network on 60,000 pictures, and a language model that is trained until it settles.

The pictures are Fashion-MNIST (https://github.com/zalandoresearch/fashion-mnist), whose four files
Debian's package `dataset-fashion-mnist` installs. The text is the reference of Python.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

from benchmarks.panel_jobs import codes, cosine, gpt, optimizer, split, windows
from syncswitch.storage.errors import UserError
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload

FASHION = Path("/usr/share/datasets/fashion-mnist")
_PICTURES_STEPS, _LETTERS_STEPS, _LENGTH = 7500, 12_000, 24


def pictures_of(folder: Path) -> Data:
    """All pictures of clothes, each less the mean and over the deviation of the training set.

    Raises UserError if the folder does not have the four files.
    """

    def read(name: str, skipped: int) -> Any:
        path = folder / name
        if not path.is_file():
            raise UserError(
                f"there is no {path}", remedy="install dataset-fashion-mnist, or name its folder"
            )
        return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=skipped)

    inputs, labels = (
        [read(f"{part}-{kind}.gz", skipped).reshape(-1, *shape) for part in ("train", "t10k")]
        for kind, skipped, shape in (
            ("images-idx3-ubyte", 16, (28, 28, 1)),
            ("labels-idx1-ubyte", 8, ()),
        )
    )
    mean, deviation = inputs[0].mean(), inputs[0].std()
    train, test = (((one - mean) / deviation).astype(np.float32) for one in inputs)
    return Data(train, labels[0].astype(np.int32), test, labels[1].astype(np.int32))


def residual_network() -> Any:
    """Three blocks of 8, 16 and 32 channels with BatchNorm, as in He et al., arXiv 1512.03385."""
    from keras import Input, Model, layers

    def normal(inputs: Any, filters: int, size: int, strides: int) -> Any:
        own = layers.Conv2D(filters, size, strides, padding="same", use_bias=False)(inputs)
        return layers.BatchNormalization()(own)

    given = Input((28, 28, 1))
    hidden = layers.ReLU()(normal(given, 8, 3, 2))
    for filters, strides in ((8, 1), (16, 2), (32, 2)):
        inner = layers.ReLU()(normal(hidden, filters, 3, strides))
        if strides > 1:
            hidden = normal(hidden, filters, 1, strides)
        hidden = layers.ReLU()(hidden + normal(inner, filters, 3, 1))
    pooled = layers.GlobalAveragePooling2D()(hidden)
    return Model(given, layers.Dense(10, activation="softmax")(pooled))


def clothes(folder: Path = FASHION) -> Workload:
    """The residual network on the pictures of a folder: four epochs with SGD."""
    return Workload(
        name="clothes-resnet",
        model=residual_network,
        data=lambda: pictures_of(folder),
        data_set="Fashion-MNIST, 60,000 train, 10,000 test",
        total_worker_steps=_PICTURES_STEPS,
        batch_size=32,
        learning_rate=0.0125,
        learning_rate_boundaries=((_PICTURES_STEPS // 2, 0.1), (_PICTURES_STEPS * 3 // 4, 0.01)),
        evaluation_interval_worker_steps=_PICTURES_STEPS // 15,
    )


def _pieces() -> Data:
    text = codes("\n".join(topics[name] for name in sorted(topics)))
    pieces = windows(text, _LENGTH, 40_000)
    return split(pieces[:, :-1], pieces[:, 1:], 1500)


LANGUAGE = Workload(
    name="language",
    model=gpt(24, 1, _LENGTH),
    data=_pieces,
    data_set="reference of Python, 38,500 pieces",
    total_worker_steps=_LETTERS_STEPS,
    batch_size=16,
    learning_rate=cosine(0.002, _LETTERS_STEPS),
    optimizer=optimizer("AdamW"),
    evaluation_interval_worker_steps=_LETTERS_STEPS // 20,
)
"""A transformer that predicts the next letter, with AdamW."""
