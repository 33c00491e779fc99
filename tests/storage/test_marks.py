"""What is experimental or goes says so to whoever uses it, at the line of the use."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass

import pytest

from syncswitch.storage.marks import (
    DeprecatedWarning,
    ExperimentalWarning,
    deprecated,
    experimental,
    renamed_parameter,
    warn_of_experimental,
)


@experimental("0.2")
def tried(number: int) -> int:
    """Doubles a number.

    Args:
        number: Any.
    """
    return 2 * number


@deprecated("0.3", "1.0", "tried")
@dataclass
class Old:
    """Holds a number."""

    number: int


@renamed_parameter("size", "workers", "0.3", "0.5")
def trained(*, workers: int = 1) -> int:
    """Trains."""
    return workers


def test_an_experimental_function_does_its_work_and_warns() -> None:
    with pytest.warns(ExperimentalWarning) as caught:
        assert tried(4) == 8
    (warning,) = caught
    assert str(warning.message) == (
        "tried is experimental since 0.2: it may change or go in any version"
    )
    assert warning.filename == __file__
    assert inspect.getdoc(tried) == (
        "Doubles a number.\n\n"
        "Experimental since 0.2: it may change or go in any version.\n\n"
        "Args:\n    number: Any."
    )


def test_a_deprecated_class_says_when_it_goes_and_what_to_use() -> None:
    with pytest.warns(DeprecatedWarning) as caught:
        old = Old(3)
    (warning,) = caught
    said = "is deprecated since 0.3 and goes in 1.0; use tried"
    assert str(warning.message) == f"Old {said}"
    assert (warning.filename, old.number, isinstance(old, Old)) == (__file__, 3, True)
    assert inspect.getdoc(Old) == f"Holds a number.\n\nD{said[4:]}."


def test_a_parameter_is_taken_by_its_former_name() -> None:
    with pytest.warns(DeprecatedWarning) as caught:
        assert trained(size=8) == 8  # type: ignore[call-arg]
    (warning,) = caught
    assert str(warning.message) == ("size of trained is called workers since 0.3, and goes in 0.5")
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trained(workers=2) == 2
    with pytest.raises(TypeError, match="got workers and its former name, size"):
        trained(size=8, workers=2)  # type: ignore[call-arg]


def test_a_value_is_warned_of_where_it_is_given() -> None:
    def search() -> None:
        warn_of_experimental("online greedy", "0.2", stack_level=2)

    with pytest.warns(ExperimentalWarning, match="^online greedy is experimental") as caught:
        search()
    assert caught[0].filename == __file__
    assert caught[0].lineno == inspect.currentframe().f_lineno - 2  # type: ignore[union-attr]


@pytest.mark.parametrize(("since", "removal"), [("0.3", "0.3"), ("0.10", "0.9"), ("soon", "1.0")])
def test_a_mark_needs_versions_one_after_the_other(since: str, removal: str) -> None:
    with pytest.raises(ValueError, match=r"cannot go in|is no version"):
        deprecated(since, removal, "tried")
