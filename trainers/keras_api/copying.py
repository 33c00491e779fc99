"""Copies of a Keras model that somebody has built, with all that it knows besides its variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.storage.files import OwnedFolder


def copies(model: Any, whose: str, *, is_fresh: bool) -> Callable[[], Any]:
    """Builds copies of the model.

    Args:
        model: A Sequential or functional model, or another one that Keras can copy.
        whose: For errors.
        is_fresh: Draw what is trained anew for each copy, instead of taking its present values;
            what is not trained, such as frozen layers and what was adapted, keeps them.

    Raises:
        WorkloadError: Keras cannot copy it.
    """
    values = [np.asarray(one) for one in model.weights]
    is_kept = [not (is_fresh and one.trainable) for one in model.weights]
    # What is compiled is copied with its loss and metrics, which only registered ones bear.
    model.compiled = False
    try:
        plain = _copied(model)
    except Exception as error:
        raise _no_copy(model, whose, one_line(error)) from error
    finally:
        model.compiled = True
    if len(plain.weights) != len(values):
        raise _no_copy(model, whose, "the copy has no variables")

    def build() -> Any:
        copy = _copied(plain)
        for variable, value, keep in zip(copy.weights, values, is_kept, strict=True):
            if keep:
                variable.assign(value)
        for layer in copy._flatten_layers():
            # Normalization computes with what it has made of its variables.
            if hasattr(layer, "finalize_state"):
                layer.finalize_state()
        return copy

    return build


def built_anew(build: Callable[[], Any], sample: Any) -> Callable[[], Any]:
    """Builds models with a function of somebody's, as they are before they are compiled.

    Args:
        build: Makes a compiled model.
        sample: Inputs of an example, with which a model is called that has no variables before.
    """

    def model() -> Any:
        made = build()
        ensure_built(made, sample)
        # A model is saved with its loss and metrics, which only registered ones bear.
        made.compiled = False
        return made

    return model


def ensure_built(model: Any, sample: Any) -> None:
    """Gives a model its variables, as `fit` does with its first batch."""
    if not (model.built and model.weights):
        model(sample)


def _copied(model: Any) -> Any:
    """A copy with variables of its own, and the vocabularies of its layers."""
    copy = keras.models.clone_model(model)
    for one, other in zip(model._flatten_layers(), copy._flatten_layers(), strict=True):
        if not hasattr(one, "save_assets"):
            continue
        # As a file of the model would have them: a vocabulary that was adapted is in no config.
        known: dict[str, Any] = {}
        one.save_own_variables(known)
        other.load_own_variables(known)
        with OwnedFolder("syncswitch-copy-") as folder:
            one.save_assets(folder)
            other.load_assets(folder)
    return copy


def _no_copy(model: Any, whose: str, why: str) -> WorkloadError:
    return WorkloadError(
        f"{whose}: Keras cannot copy the model, a {type(model).__name__} ({why}); give a function"
        " that builds and compiles it instead of the model itself"
    )
