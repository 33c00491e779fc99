"""Ten small jobs of which no prior was made.

Two rules come from them: the growth of the bound of own momentum while a training goes downhill was
chosen on the first two, and `letters` showed that BSP was measured where nothing depended on it.
Six of the ten train with SGD, four with Adam and its like, on 4 to 16 workers of three kinds of
simulated cluster: as in the paper's logs, equal workers, and one worker at a quarter of the speed.
Their data are what comes with the product, Python's own texts, and formulas.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

from benchmarks.panel_jobs import LETTERS, PanelJob, codes, optimizer, panel_job, split
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.workloads import digits

_FALLING = ((0.5, 0.1), (0.75, 0.01))
_SIGNAL = 48  # samples


def _dense(inputs: int, outputs: int, *widths: int, activation: str = "relu") -> Callable[[], Any]:
    def build() -> Any:
        from keras import Input, Sequential, layers

        hidden = [layers.Dense(width, activation=activation) for width in widths]
        return Sequential([Input((inputs,)), *hidden, layers.Dense(outputs, activation="softmax")])

    return build


def _halves_of_digits() -> Data:
    """Whether two pictures side by side show the same digit, which half of them do."""
    known, random = digits.workload.load_data(), np.random.default_rng(0)

    def pairs(inputs: Any, labels: Any, count: int) -> tuple[Any, Any]:
        first = random.integers(0, len(inputs), count)
        second = random.integers(0, len(inputs), count)
        is_same = random.random(count) < 0.5
        for place in np.flatnonzero(is_same):
            second[place] = random.choice(np.flatnonzero(labels == labels[first[place]]))
        both = np.concatenate([inputs[first], inputs[second]], axis=2)
        return both, (labels[first] == labels[second]).astype(np.int32)

    train = pairs(known.train_inputs, known.train_labels, 6000)
    return Data(*train, *pairs(known.test_inputs, known.test_labels, 1500))


def _order_of_digits() -> Data:
    """Whether the left one of two pictures side by side shows the larger digit."""
    known, random = digits.workload.load_data(), np.random.default_rng(6)

    def pairs(inputs: Any, labels: Any, count: int) -> tuple[Any, Any]:
        first, second = random.integers(0, len(inputs), (2, count))
        differ = labels[first] != labels[second]
        first, second = first[differ], second[differ]
        both = np.concatenate([inputs[first], inputs[second]], axis=2)
        return both, (labels[first] > labels[second]).astype(np.int32)

    train = pairs(known.train_inputs, known.train_labels, 8000)
    return Data(*train, *pairs(known.test_inputs, known.test_labels, 2000))


def _two_pictures() -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((8, 16, 1)),
            layers.Conv2D(12, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(24, 3, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dense(2, activation="softmax"),
        ]
    )


def _checkers() -> Data:
    """The colour of a point on a board of 4 x 4 fields, beside two coordinates that say nothing."""
    points = np.random.default_rng(1).uniform(0, 4, (9000, 4)).astype(np.float32)
    labels = points[:, :2].astype(int).sum(axis=1) % 2
    return split(points / 2 - 1, labels.astype(np.int32), 3000)


def _parity() -> Data:
    """Whether an even number of three bits is set, beside nine bits that say nothing."""
    bits = np.random.default_rng(7).choice([-1.0, 1.0], (11_000, 12))
    bits = bits + np.random.default_rng(8).normal(0, 0.4, bits.shape)
    labels = (bits[:, :3].prod(axis=1) > 0).astype(np.int32)
    return split(bits.astype(np.float32), labels, 3000)


def _waves() -> Data:
    """Sines, squares, saws, triangles and pulses of any pitch and phase, with noise."""
    random = np.random.default_rng(2)
    count = 8000
    pitch, phase = random.uniform(1.5, 5, (count, 1)), random.uniform(0, 1, (count, 1))
    turns = (pitch * np.linspace(0, 1, _SIGNAL) + phase) % 1
    kinds = np.stack(
        [
            np.sin(2 * np.pi * turns),
            np.where(turns < 0.5, 1.0, -1.0),
            2 * turns - 1,
            4 * np.abs(turns - 0.5) - 1,
            np.where(turns < 0.2, 2.0, -0.5),
        ]
    )
    labels = random.integers(0, len(kinds), count).astype(np.int32)
    signals = kinds[labels, np.arange(count)] + random.normal(0, 0.5, (count, _SIGNAL))
    return split(signals.astype(np.float32)[..., None], labels, 2000)


def _heard() -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((_SIGNAL, 1)),
            layers.Conv1D(12, 7, activation="relu"),
            layers.MaxPooling1D(2),
            layers.Conv1D(24, 5, activation="relu"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(24, activation="relu"),
            layers.Dense(5, activation="softmax"),
        ]
    )


def _sections_of_text() -> Data:
    """Counts of pairs of letters in pieces of prose, programs and grammar, and which it is."""
    folder = Path(os.__file__).parent
    grammar = [name for name, text in topics.items() if "::=" in text]
    texts = (
        "\n".join(text for name, text in sorted(topics.items()) if name not in grammar),
        "\n".join(topics[name] for name in sorted(grammar)),
        "\n".join((folder / f"{name}.py").read_text("utf-8") for name in ("socket", "shutil")),
        "\n".join((folder / f"{name}.py").read_text("utf-8") for name in ("fractions", "heapq")),
    )
    random, inputs = np.random.default_rng(3), []
    for text in texts:
        letters = codes(text)
        places = random.integers(0, len(letters) - 65, 2000)
        pieces = letters[places[:, None] + np.arange(65)]
        pairs = (pieces[:, :-1] * 31 + pieces[:, 1:] * 7) % 256
        counts = np.zeros((len(places), 256), np.float32)
        np.add.at(counts, (np.arange(len(places))[:, None], pairs), 0.25)
        inputs.append(counts)
    labels = np.repeat(np.arange(len(texts), dtype=np.int32), 2000)
    return split(np.concatenate(inputs), labels, 2000)


def _letter_between() -> Data:
    """Six letters before and after one in Python's reference, which is to be guessed."""
    letters = codes("\n".join(topics[name] for name in sorted(topics)))
    places = np.arange(16_000) * 1009 % (len(letters) - 13)
    pieces = letters[places[:, None] + np.arange(13)]
    return split(np.delete(pieces, 6, axis=1), pieces[:, 6], 3000)


def _between() -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((12,), dtype="int32"),
            layers.Embedding(LETTERS, 10),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(LETTERS, activation="softmax"),
        ]
    )


def _clouds() -> Data:
    """Twelve points of a circle, a square, a cross, or two blobs, turned and shaken."""
    random = np.random.default_rng(4)
    count, points = 8000, 12
    along = random.uniform(0, 1, (count, points))
    side, sign = random.integers(0, 4, (count, points)), random.choice([-1.0, 1.0], (count, points))
    circle = np.stack([np.cos(2 * np.pi * along), np.sin(2 * np.pi * along)], 2)
    square = np.where(
        (side % 2 == 0)[..., None],
        np.stack([2 * along - 1, sign], 2),
        np.stack([sign, 2 * along - 1], 2),
    )
    cross = np.where(
        (side % 2 == 0)[..., None],
        np.stack([2 * along - 1, 0 * along], 2),
        np.stack([0 * along, 2 * along - 1], 2),
    )
    blobs = np.stack([sign, 0 * sign], 2) + random.normal(0, 0.2, (count, points, 2))
    labels = random.integers(0, 4, count).astype(np.int32)
    chosen = np.stack([circle, square, cross, blobs])[labels, np.arange(count)]
    angle = random.uniform(0, 2 * np.pi, count)
    turned = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1)
    shaken = random.normal(0, 0.12, chosen.shape)
    clouds = np.einsum("npj,nij->npi", chosen, turned.reshape(-1, 2, 2)) + shaken
    return split(clouds.astype(np.float32), labels, 2000)


def _set_of_points() -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((12, 2)),
            layers.Dense(32, activation="relu"),
            layers.Dense(32, activation="relu"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(32, activation="relu"),
            layers.Dense(4, activation="softmax"),
        ]
    )


def _sums_modulo() -> Data:
    """A chain of four digits joined by plus and minus, and its value modulo 3."""
    random = np.random.default_rng(5)
    numbers = random.integers(0, 3, (12_000, 4))
    signs = random.choice([-1, 1], (12_000, 3))
    values = (numbers[:, 0] + (signs * numbers[:, 1:]).sum(axis=1)) % 3
    inputs = np.empty((len(numbers), 7), np.int32)
    inputs[:, ::2], inputs[:, 1::2] = numbers, 3 + (signs > 0)
    return split(inputs, values.astype(np.int32), 3000)


def _calculator() -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((7,), dtype="int32"),
            layers.Embedding(5, 8),
            layers.Flatten(),
            layers.Dense(96, activation="relu"),
            layers.Dense(64, activation="relu"),
            layers.Dense(3, activation="softmax"),
        ]
    )


EVIDENCE: tuple[PanelJob, ...] = (
    panel_job("pairs", _two_pictures, _halves_of_digits, None, 0.01, 3200,
              workers=4, boundaries=_FALLING, largest_scaling=8),
    panel_job("checkers", _dense(4, 2, 48, 32), _checkers, None, 0.02, 4800,
              cluster="equal", boundaries=_FALLING, largest_scaling=8),
    panel_job("order", _two_pictures, _order_of_digits, None, 0.01, 3200,
              workers=4, boundaries=_FALLING, largest_scaling=8),
    panel_job("parity", _dense(12, 2, 48, 32), _parity, None, 0.02, 4000,
              cluster="equal", boundaries=_FALLING, largest_scaling=8),
    panel_job("waves", _heard, _waves, None, 0.02, 2400,
              cluster="straggler", boundaries=((0.6, 0.1), (0.85, 0.01))),
    panel_job("sections", _dense(256, 4, 24, activation="tanh"), _sections_of_text, None, 0.01,
              3200, workers=16, boundaries=_FALLING, largest_scaling=8),
    panel_job("letters", _between, _letter_between, optimizer("AdamW"), 0.001, 4000,
              boundaries=((0.6, 0.3), (0.85, 0.1))),
    panel_job("clouds", _set_of_points, _clouds, optimizer("Adam"), 0.001, 3200,
              workers=4, cluster="equal", boundaries=_FALLING),
    panel_job("modulo", _calculator, _sums_modulo, optimizer("Adam"), 0.0005, 4000,
              cluster="straggler", boundaries=((0.6, 0.2), (0.85, 0.05))),
    panel_job("sections-adam", _dense(256, 4, 24), _sections_of_text, optimizer("Nadam"), 0.001,
              2400, workers=16, boundaries=_FALLING),
)  # fmt: skip
