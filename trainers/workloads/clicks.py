"""Clicks of users on items: two tables of embeddings, of which a batch needs few rows.

The clicks are drawn from a logistic model, the same on every machine. Users and items have a long
tail: a few of them make up most examples, and most are hardly ever seen.

`SYNCSWITCH_CLICKS_ROWS` says how many rows each table has, 10,000 by default.

BSP trains well at this learning rate with 8 workers; stale gradients from the start leave a model
that has learned nothing.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.sources import Array
from syncswitch.trainers.job.workload import Workload

ROWS_VARIABLE = "SYNCSWITCH_CLICKS_ROWS"  # environment variable with the rows of each table
DENSE = 4  # features of an example that are not row numbers
WIDTH = 16  # values of a row
_ROWS = 10_000
# Row numbers are float32, like the other features.
_MOST_ROWS = 1 << 24
# The job is one epoch; 4 of 10 rows are seen once or never.
_TRAIN_EXAMPLES, _TEST_EXAMPLES = 128_000, 20_000
_TAIL = 1.1
_TASTES = 3


def generate(examples: int, rows: int) -> tuple[Array, Array, Array]:
    """Draws clicks, from the appeal of users and items, their shared tastes, and dense features.

    Returns:
        Inputs in float32 (dense features, the number of the user, that of the item), labels (1 for
        a click, else 0), and the probabilities by which these were drawn.
    """
    random = np.random.default_rng(0)
    share = np.cumsum(1.0 / np.arange(1, rows + 1) ** _TAIL)
    logits, tastes, columns = np.full(examples, -1.0), [], []
    for _ in range(2):
        ranks = np.searchsorted(share, share[-1] * random.random(examples))
        seen, places = np.unique(ranks, return_inverse=True)
        logits += random.standard_normal(len(seen))[places]
        tastes.append(0.7 * random.standard_normal((len(seen), _TASTES))[places])
        # Otherwise the most wanted rows would be neighbours.
        columns.append(random.permutation(rows)[ranks])
    dense = random.standard_normal((examples, DENSE))
    logits += np.sum(tastes[0] * tastes[1], axis=1) + dense @ np.linspace(0.5, 0.1, DENSE)
    probabilities = 1 / (1 + np.exp(-logits))
    labels = (random.random(examples) < probabilities).astype(np.float32)
    return np.column_stack((dense, *columns)).astype(np.float32), labels, probabilities


def click_model(dense: int, tables: int, rows: int) -> Any:
    """Builds a small DLRM.

    Source: Naumov et al., Deep Learning Recommendation Model for Personalization and Recommendation
    Systems (arXiv 1906.00091). Embeddings and dense features are multiplied in pairs, and
    passed on beside the products. The input has the dense features, then a row of each table.
    """
    from keras import Input, Model, layers

    inputs = Input((dense + tables,))
    vectors = [layers.Dense(WIDTH, activation="relu")(inputs[:, :dense])]
    for number in range(tables):
        table = layers.Embedding(rows, WIDTH, name=f"table_{number}")
        vectors.append(table(inputs[:, dense + number]))
    products = [
        layers.Dot(1)([one, other])
        for place, one in enumerate(vectors)
        for other in vectors[:place]
    ]
    hidden = layers.Dense(32, activation="relu")(layers.Concatenate()([*vectors, *products]))
    return Model(inputs, layers.Dense(1, activation="sigmoid")(hidden))


def auc() -> Any:
    """Builds the metric, finer than Keras' default, as good models differ by little."""
    from keras import metrics

    return metrics.AUC(num_thresholds=1000)


def rows_of_tables() -> int:
    """Returns the number in the environment, or the default; raises WorkloadError if it is bad."""
    text = os.environ.get(ROWS_VARIABLE) or str(_ROWS)
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _MOST_ROWS:
        raise WorkloadError(
            f"{ROWS_VARIABLE} is {text!r}; give a whole number from 1 to {_MOST_ROWS}"
        )
    return int(text)


def _load(rows: int) -> Data:
    inputs, labels, _ = generate(_TRAIN_EXAMPLES + _TEST_EXAMPLES, rows)
    labels, cut = labels[:, np.newaxis], _TRAIN_EXAMPLES
    return Data(inputs[:cut], labels[:cut], inputs[cut:], labels[cut:])


_STEPS = 2_000

workload = Workload(
    name="clicks",
    model=partial(click_model, DENSE, 2, rows_of_tables()),
    data=partial(_load, rows_of_tables()),
    data_set=f"generated clicks, tables of {rows_of_tables()} rows",
    total_worker_steps=_STEPS,
    batch_size=64,
    learning_rate=0.1,
    learning_rate_boundaries=((_STEPS // 2, 0.1), (_STEPS * 3 // 4, 0.01)),
    loss="binary_crossentropy",
    metric=auc,
    evaluation_interval_worker_steps=_STEPS // 20,
)
