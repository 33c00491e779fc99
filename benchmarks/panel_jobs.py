"""A panel of jobs as people bring them: mostly Adam, some other optimizers, one with SGD.

Each is a workload of a few seconds on the simulated cluster: attention, recurrence, convolutions,
embeddings and plain networks, on data that come with the product, Python's own texts, formulas, and
pictures of clothes where Debian's package `dataset-fashion-mnist` is installed. Some have settled
when their steps end, others still learn. The rules for such jobs were chosen on `OPEN` alone.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import numpy as np

from benchmarks.second_phase_jobs import TRANSFORMER
from syncswitch.storage.errors import UserError
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.workloads import breast_cancer, digits

LETTERS = 96  # printable ASCII, and all else as one
_FASHION = Path("/usr/share/datasets/fashion-mnist")


class PanelJob(NamedTuple):
    """A workload, the number of its workers, and their simulated cluster by its name."""

    workload: Workload
    workers: int = 8
    cluster: str = "paper"

    def lasting(self, worker_steps: int | None) -> PanelJob:
        """The job of so many worker-steps, with one test at their end; None for its own number."""
        if worker_steps is None:
            return self
        shorter = replace(
            self.workload,
            total_worker_steps=worker_steps,
            evaluation_interval_worker_steps=worker_steps,
        )
        return self._replace(workload=shorter)


def optimizer(name: str, **options: Any) -> Callable[[], Any]:
    """What builds an optimizer of Keras."""

    def build() -> Any:
        import keras

        return getattr(keras.optimizers, name)(**options)

    return build


def cosine(rate: float, steps: int, warm_up: float = 0.1) -> Callable[[], Any]:
    """Rises from 0 in the first share of the steps, then falls with a cosine to a twentieth."""

    def build() -> Any:
        from keras.optimizers.schedules import CosineDecay

        first = int(warm_up * steps)
        return CosineDecay(0.0, steps - first, 0.05, warmup_target=rate, warmup_steps=first)

    return build


def codes(text: str) -> Any:
    """The letters of a text as numbers below `LETTERS`."""
    letters = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int32) - 31
    return np.clip(letters, 0, LETTERS - 1)


def split(inputs: Any, labels: Any, tests: int) -> Data:
    """Data in an order by chance, of which so many are the test set."""
    order = np.random.default_rng(0).permutation(len(inputs))
    train, test = order[tests:], order[:tests]
    return Data(inputs[train], labels[train], inputs[test], labels[test])


def windows(codes: Any, length: int, count: int) -> Any:
    places = np.arange(count) * 997 % (len(codes) - length - 1)
    return codes[places[:, None] + np.arange(length + 1)]


def _reference() -> str:
    return "\n".join(topics[name] for name in sorted(topics))


def _sources() -> str:
    folder = Path(os.__file__).parent
    return "\n".join(
        (folder / f"{name}.py").read_text("utf-8")
        for name in ("argparse", "tarfile", "typing", "doctest", "smtplib", "ast", "pdb")
    )


def _next_letters(text: Callable[[], str], length: int = 24) -> Callable[[], Data]:
    def load() -> Data:
        pieces = windows(codes(text()), length, 14_000)
        return split(pieces[:, :-1], pieces[:, 1:], 1000)

    return load


def _module_of_text() -> Data:
    """Pieces of four modules' sources, and the number of the module."""
    folder, pieces = Path(os.__file__).parent, []
    for name in ("argparse", "tarfile", "doctest", "typing"):
        pieces.append(windows(codes((folder / f"{name}.py").read_text("utf-8")), 31, 2500))
    labels = np.repeat(np.arange(len(pieces), dtype=np.int32), 2500)
    return split(np.concatenate(pieces), labels, 1500)


def _with_places(inputs: Any, width: int) -> Any:
    from keras import layers

    class Places(layers.Layer):  # type: ignore[misc]  # Keras has no types
        """Adds what is learned of each place."""

        def build(self, shape: Any) -> None:
            self.values = self.add_weight(
                name="values", shape=shape[1:], initializer="random_normal"
            )

        def call(self, inputs: Any) -> Any:
            return inputs + self.values

    return Places()(inputs)


def _attended(hidden: Any, width: int, heads: int, *, is_causal: bool) -> Any:
    """A transformer block that normalizes first."""
    from keras import layers

    normal = layers.LayerNormalization()(hidden)
    attention = layers.MultiHeadAttention(heads, width // heads)
    hidden = hidden + attention(normal, normal, use_causal_mask=is_causal)
    normal = layers.LayerNormalization()(hidden)
    return hidden + layers.Dense(width)(layers.Dense(2 * width, activation="gelu")(normal))


def gpt(width: int, blocks: int, length: int = 24) -> Callable[[], Any]:
    def build() -> Any:
        from keras import Input, Model, layers

        given = Input((length,), dtype="int32")
        hidden = _with_places(layers.Embedding(LETTERS, width)(given), width)
        for _ in range(blocks):
            hidden = _attended(hidden, width, 2, is_causal=True)
        hidden = layers.LayerNormalization()(hidden)
        return Model(given, layers.Dense(LETTERS, activation="softmax")(hidden))

    return build


def _text_classifier() -> Any:
    from keras import Input, Model, layers

    given = Input((32,), dtype="int32")
    hidden = _with_places(layers.Embedding(LETTERS, 24)(given), 24)
    hidden = layers.GlobalAveragePooling1D()(_attended(hidden, 24, 2, is_causal=False))
    hidden = layers.Dense(20, activation="relu")(hidden)
    return Model(given, layers.Dense(4, activation="softmax")(hidden))


def _vision_transformer() -> Any:
    from keras import Input, Model, layers

    given = Input((8, 8, 1))
    patches = layers.Reshape((16, 4))(
        layers.Permute((1, 3, 2, 4))(layers.Reshape((4, 2, 4, 2))(given))
    )
    hidden = _with_places(layers.Dense(24)(patches), 24)
    for _ in range(2):
        hidden = _attended(hidden, 24, 2, is_causal=False)
    hidden = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(hidden))
    return Model(given, layers.Dense(10, activation="softmax")(hidden))


def _reversed_digits() -> Data:
    """Sums of two numbers below 1,000, digit by digit, the last one first."""
    random = np.random.default_rng(0)
    first, second = random.integers(0, 1000, (2, 12_000))

    def digits_of(numbers: Any, count: int) -> Any:
        return (numbers[:, None] // 10 ** np.arange(count) % 10).astype(np.int32)

    inputs = np.stack([digits_of(first, 4), digits_of(second, 4)], axis=2)
    return split(inputs, digits_of(first + second, 4), 2000)


def _recurrent() -> Any:
    from keras import Input, Model, layers

    given = Input((4, 2), dtype="int32")
    hidden = layers.Reshape((4, 16))(layers.Embedding(10, 8)(given))
    hidden = layers.LSTM(32, return_sequences=True, unroll=True)(hidden)
    return Model(given, layers.Dense(10, activation="softmax")(hidden))


def _rings() -> Data:
    random = np.random.default_rng(0)
    points = random.uniform(-1, 1, (6000, 8)).astype(np.float32)
    radius = np.linalg.norm(points[:, :4], axis=1)
    labels = (np.digitize(radius, [0.8, 1.1, 1.4]) + 4 * (points[:, 4] * points[:, 5] > 0)) % 5
    return split(points, labels.astype(np.int32), 1500)


def _plain(inputs: int, outputs: int, width: int, last: str | None) -> Callable[[], Any]:
    def build() -> Any:
        from keras import Input, Sequential, layers

        hidden = [layers.Dense(width, activation="relu") for _ in range(2)]
        return Sequential([Input((inputs,)), *hidden, layers.Dense(outputs, activation=last)])

    return build


def _friedman() -> Data:
    """Friedman's first function of five of ten variables, with noise of deviation 1."""
    random = np.random.default_rng(0)
    x = random.uniform(size=(5000, 10)).astype(np.float32)
    curve = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    values = curve + 10 * x[:, 3] + 5 * x[:, 4] + random.standard_normal(len(x))
    return split(x, values.astype(np.float32), 1000)


def _fashion() -> Data:
    if not _FASHION.is_dir():
        raise UserError(f"there is no {_FASHION}", remedy="install dataset-fashion-mnist")

    def read(name: str, skipped: int) -> Any:
        content = gzip.decompress((_FASHION / name).read_bytes())
        return np.frombuffer(content, np.uint8, offset=skipped)

    pictures = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 14, 2, 14, 2)[:8000]
    inputs = (pictures.mean((2, 4)) / 255).astype(np.float32)[..., None]
    return split(inputs, read("train-labels-idx1-ubyte.gz", 8)[:8000].astype(np.int32), 2000)


def _convolutions() -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((14, 14, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def _tastes() -> Data:
    """Whether a user likes a film: the sign of a product of hidden tastes, with noise."""
    random = np.random.default_rng(0)
    users, films = random.normal(size=(300, 4)), random.normal(size=(200, 4))
    pairs = np.stack([random.integers(0, 300, 20_000), random.integers(0, 200, 20_000)], 1)
    scores = (users[pairs[:, 0]] * films[pairs[:, 1]]).sum(1)
    labels = (scores + random.normal(size=len(pairs)) > 0).astype(np.int32)
    return split(pairs.astype(np.int32), labels, 4000)


def _recommender() -> Any:
    from keras import Input, Model, layers

    given = Input((2,), dtype="int32")
    user = layers.Embedding(300, 8)(given[:, 0])
    film = layers.Embedding(200, 8)(given[:, 1])
    hidden = layers.Concatenate()([user * film, user, film])
    hidden = layers.Dense(16, activation="relu")(hidden)
    return Model(given, layers.Dense(2, activation="softmax")(hidden))


def _residual() -> Any:
    from keras import Input, Model, layers

    def convolved(inputs: Any, filters: int) -> Any:
        own = layers.Conv2D(filters, 3, padding="same", use_bias=False)(inputs)
        return layers.BatchNormalization()(own)

    given = Input((8, 8, 1))
    hidden = layers.ReLU()(convolved(given, 12))
    hidden = layers.ReLU()(hidden + convolved(layers.ReLU()(convolved(hidden, 12)), 12))
    pooled = layers.GlobalAveragePooling2D()(layers.ReLU()(convolved(hidden, 24)))
    return Model(given, layers.Dense(10, activation="softmax")(pooled))


def panel_job(
    name: str,
    model: Callable[[], Any],
    data: Callable[[], Data],
    optimizer: Callable[[], Any] | None,
    rate: float | Callable[[], Any],
    steps: int,
    *,
    workers: int = 8,
    cluster: str = "paper",
    batch_size: int = 32,
    boundaries: Sequence[tuple[float, float]] = (),
    **fields: Any,
) -> PanelJob:
    """A job with 16 tests; boundaries are shares of its steps, `fields` those of `Workload`."""
    workload = Workload(
        name=name,
        model=model,
        data=data,
        data_set=name,
        total_worker_steps=steps,
        batch_size=batch_size,
        learning_rate=rate,
        learning_rate_boundaries=tuple((int(at * steps), factor) for at, factor in boundaries),
        optimizer=optimizer,
        evaluation_interval_worker_steps=steps // 16,
        **fields,
    )
    return PanelJob(workload, workers, cluster)


_FALLING = ((0.5, 0.1), (0.75, 0.01))
_CLIPPED = optimizer("AdamW", weight_decay=0.01, global_clipnorm=1.0)

OPEN: tuple[PanelJob, ...] = (
    panel_job(
        "gpt",
        gpt(32, 2),
        _next_letters(_reference),
        _CLIPPED,
        cosine(0.003, 2400),
        2400,
        batch_size=16,
    ),
    PanelJob(TRANSFORMER),
    panel_job(
        "vision",
        _vision_transformer,
        digits.workload.data,
        optimizer("AdamW"),
        0.001,
        3200,
        boundaries=((0.7, 0.1),),
    ),
    panel_job("rings", _plain(8, 5, 48, "softmax"), _rings, optimizer("Adam"), 0.001, 624),
    panel_job(
        "friedman",
        _plain(10, 1, 32, None),
        _friedman,
        optimizer("Adam"),
        0.002,
        1600,
        loss="mse",
        metric="mae",
        largest_scaling=3,
    ),
    panel_job(
        "clothes",
        _convolutions,
        _fashion,
        optimizer("Adam"),
        0.001,
        3200,
        workers=16,
        boundaries=_FALLING,
    ),
    panel_job("recommender", _recommender, _tastes, optimizer("Adam"), 0.002, 2400, workers=4),
)
BY_ROWS: tuple[PanelJob, ...] = (
    panel_job("recommender-rows", _recommender, _tastes, optimizer("Adam"), 0.002, 2400, workers=4,
         least_embedding_values=1),
)  # fmt: skip
"""Jobs again, with embeddings that are trained by rows."""

UNSEEN: tuple[PanelJob, ...] = (
    panel_job("gpt-sources", gpt(24, 1), _next_letters(_sources), optimizer("AdamW"),
         cosine(0.002, 2400), 2400, batch_size=16),
    panel_job("text", _text_classifier, _module_of_text, optimizer("Adam"), 0.001, 2400),
    panel_job("sums", _recurrent, _reversed_digits, optimizer("Adam"), 0.003, 3200, batch_size=64),
    panel_job("residual-sgd", _residual, digits.workload.data, None, 0.005, 2400,
         boundaries=_FALLING, largest_scaling=8),
    panel_job("rings-16", _plain(8, 5, 48, "softmax"), _rings, optimizer("Nadam"), 0.002, 3200,
         workers=16, boundaries=_FALLING),
    panel_job("cells", breast_cancer.workload.model, breast_cancer.workload.data,
         optimizer("RMSprop"), 0.001, 1600, workers=4),
    panel_job("clothes-4", _convolutions, _fashion, optimizer("AdamW"), 0.002, 1600, workers=4),
    panel_job("friedman-lion", _plain(10, 1, 32, None), _friedman, optimizer("Lion"), 0.0005, 2400,
         loss="mse", metric="mae", boundaries=((0.6, 0.2),)),
)  # fmt: skip
