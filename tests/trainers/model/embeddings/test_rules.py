from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.model.embeddings.rules import Update, row_rule
from tests.trainers.clicks import CLICKS, adagrad, adam, keras_momentum, keras_sgd


@pytest.mark.parametrize("optimizer", [keras_momentum, keras_sgd, adagrad, adam])
def test_a_rule_moves_rows_as_the_optimizer_of_keras_does(optimizer: Callable[[], Any]) -> None:
    from keras import Variable

    rule, random = row_rule(replace(CLICKS, optimizer=optimizer)), np.random.default_rng(0)
    values = random.standard_normal((5, 3)).astype(np.float32)
    slots = [np.full_like(values, rule.initial) for _ in rule.slots]
    table, built = Variable(values), optimizer()
    for update, rate in enumerate([0.1, 0.1, 0.1, 0.01, 0.01]):
        gradient = random.standard_normal(values.shape).astype(np.float32)
        rule.apply(values, slots, gradient, Update(update, rate, momentum=0.3))
        built.learning_rate = rate
        built.apply([gradient], [table])
    np.testing.assert_allclose(values, table.numpy(), rtol=1e-5)
