from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.job.workload import Momentum, Workload
from tests.trainers.clicks import of_keras
from tests.trainers.jobs import CONSTANT, DESCRIBED, digits_model, normalized_model


def fingerprint(
    workload: Workload, workers: int = 4, pair: tuple[str, str] = ("bsp", "asp")
) -> str:
    # A workload keeps what it was found to be; another one does not know of it.
    return workload_identity(replace(workload), workers, *pair).fingerprint


def model(
    keras: Any,
    width: int = 24,
    activation: Any = "relu",
    rate: Any = 0.3,
    layers: int = 1,
    **settings: Any,
) -> Callable[[], Any]:
    def build() -> Any:
        of = keras.layers
        hidden = (
            (of.Dense(width, activation, **settings), of.Dropout(rate)) for _ in range(layers)
        )
        return digits_model(*itertools.chain(*hidden))

    return build


def test_the_model_is_built_once_for_all_clusters(keras: Any) -> None:
    built = []

    def counted() -> Any:
        built.append(model(keras, width=24 + len(built))())
        return built[-1]

    workload = replace(DESCRIBED, model=counted)
    one, other = (workload_identity(workload, n, "bsp", "asp") for n in (4, 5))
    assert (len(built), one.recipe.model) == (1, other.recipe.model)
    assert workload_identity(replace(workload), 4, "bsp", "asp").recipe.model != one.recipe.model


def test_the_fingerprint_stays_when_only_names_seeds_and_unused_rates_differ(keras: Any) -> None:
    """The rate of the workload counts, not the one that the optimizer was built with."""
    glorot, adam = keras.initializers.GlorotUniform, keras.optimizers.Adam
    pairs = [
        ({"model": model(keras)}, {"model": model(keras, name="hidden"), "name": "another"}),
        *(({"model": model(keras, kernel_initializer=glorot(seed=seed))} for seed in (1, 2)),),
        ({"optimizer": lambda: adam(0.1)}, {"optimizer": lambda: adam(0.2)}),
        ({"class_weight": {0: 1.0, 1: 3.0}}, {"class_weight": {1: 3.0, 0: 1.0}}),
    ]
    for seed, (one, other) in enumerate(pairs):
        first = fingerprint(replace(DESCRIBED, **one))
        keras.utils.set_random_seed(seed)
        assert fingerprint(replace(DESCRIBED, **other)) == first


def test_the_fingerprint_stays_from_version_to_version() -> None:
    """As before there were schedules, momenta after the switch, and limits of the scaling."""
    jobs = {
        "95ee6f92dc0b1bb0": load_workload("digits"),
        "24dac7bf96df069f": DESCRIBED,
        "b09392d762d154ed": CONSTANT,
        "e4c0035ab91a68ac": replace(DESCRIBED, model=normalized_model),
        "17e7ca4b3063b977": replace(DESCRIBED, optimizer=of_keras("Adam")),
    }
    shared = [replace(workload, momentum_after_switch="same") for workload in jobs.values()]
    assert [fingerprint(workload)[:16] for workload in shared] == list(jobs)


def test_the_fingerprint_stays_with_a_limit_that_so_many_workers_do_not_reach() -> None:
    limited = replace(DESCRIBED, largest_scaling=4)
    assert fingerprint(limited) == fingerprint(DESCRIBED)
    assert fingerprint(limited, workers=5) != fingerprint(DESCRIBED, workers=5)


def test_the_fingerprint_stays_when_the_file_lies_elsewhere(keras: Any, tmp_path: Path) -> None:
    """Also with a Lambda layer, whose settings hold compiled code and its file's name."""
    source = """
        from dataclasses import replace
        from syncswitch.trainers.job.workload import Workload

        def model():
            import keras
            return keras.Sequential(
                [keras.Input((4,)), keras.layers.Lambda(lambda x: 2 * x), keras.layers.Dense(1)]
            )

        mine = Workload(
            name="mine", model=model, data=None, data_set="d", total_worker_steps=1,
            batch_size=1, learning_rate=0.1, evaluation_interval_worker_steps=1,
        )
    """
    prints = set()
    for folder in ("one", "another"):
        path = tmp_path / folder / "job.py"
        path.parent.mkdir()
        path.write_text(textwrap.dedent(source))
        prints.add(fingerprint(load_workload(f"{path}:mine")))
    assert len(prints) == 1


def functional(keras: Any, skip: bool) -> Callable[[], Any]:
    def build() -> Any:
        inputs = keras.Input((4,))
        one = keras.layers.Dense(4, activation="relu")(inputs)
        two = keras.layers.Dense(4, activation="relu")(one)
        return keras.Model(inputs, keras.layers.Add()([two, one if skip else inputs]))

    return build


Fields = dict[str, list[Any]]
"""Other values of fields, each of which makes another job."""

OTHER_JOBS: dict[str, Callable[[Any], Fields]] = {
    "a plain field": lambda keras: {
        "total_worker_steps": [404],
        "batch_size": [17],
        "learning_rate": [0.021],
        "learning_rate_boundaries": [((200, 0.1), (300, 0.02)), ((200, 0.1), (301, 0.01)), ()],
        "momentum": [0.8],
        "data_set": ["other"],
        "evaluation_interval_worker_steps": [7],
        "largest_scaling": [2, 3],
        "batch_after_switch": ["global"],
    },
    "the model": lambda keras: {
        "model": [
            normalized_model,
            model(keras),
            model(keras, width=25),
            model(keras, activation="tanh"),
            model(keras, activation=None),
            model(keras, rate=0.4),
            model(keras, rate=0.0),
            # A setting given as a NumPy number.
            model(keras, rate=np.float32(0.25)),
            model(keras, rate=np.float32(0.5)),
            model(keras, layers=2),
            model(keras, use_bias=False),
            model(keras, trainable=False),
            model(keras, kernel_initializer="zeros"),
            model(keras, kernel_regularizer=keras.regularizers.L2(0.1)),
            model(keras, kernel_regularizer=keras.regularizers.L2(0.2)),
            functional(keras, skip=True),
            functional(keras, skip=False),
        ]
    },
    "the optimizer": lambda keras: {
        "optimizer": [
            of_keras("SGD"),
            of_keras("SGD", momentum=0.9),
            of_keras("SGD", momentum=0.9, nesterov=True),
            of_keras("Adam"),
            of_keras("Adam", beta_1=0.8),
            of_keras("Adam", clipnorm=1.0),
            of_keras("AdamW"),
            of_keras("AdamW", weight_decay=0.1),
        ]
    },
    "loss and metric": lambda keras: {
        "loss": [
            "mse",
            lambda: keras.losses.SparseCategoricalCrossentropy(),
            lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            # Keras leaves the delta of Huber out of its settings.
            lambda: keras.losses.Huber(0.5),
            lambda: keras.losses.Huber(2.0),
        ],
        "class_weight": [{1: 3.0}, {1: 4.0}],
        "metric": [
            lambda: keras.metrics.SparseTopKCategoricalAccuracy(k=2),
            lambda: keras.metrics.SparseTopKCategoricalAccuracy(k=3),
        ],
    },
}


@pytest.mark.parametrize("what", OTHER_JOBS)
def test_the_fingerprint_changes_with(keras: Any, what: str) -> None:
    fields = OTHER_JOBS[what](keras)
    jobs = [replace(DESCRIBED, **{name: one}) for name, values in fields.items() for one in values]
    prints = [fingerprint(job) for job in [DESCRIBED, *jobs]]
    assert sorted(set(prints)) == sorted(prints)


def test_the_fingerprint_changes_with_the_cluster_and_the_stages_and_not_with_protocols() -> None:
    pairs = (("bsp", "asp"), ("asp", "bsp"))
    assert len({fingerprint(DESCRIBED, n, pair) for n in (4, 5) for pair in pairs}) == 2
    rules = (one for one in get_args(Momentum) if one != "own")
    others = [replace(DESCRIBED, momentum_after_switch=rule) for rule in rules]
    assert {*map(fingerprint, others)} == {fingerprint(DESCRIBED)}
    found = {workload_identity(one, 4, "bsp", "asp").momentum_after_switch for one in others}
    assert found == {*get_args(Momentum)} - {"own"}
    ramped = replace(DESCRIBED, momentum_after_switch="ramped")
    staged = [replace(ramped, momentum_stage_worker_steps=one) for one in (None, 10, 20)]
    assert len(set(map(fingerprint, staged))) == 3
