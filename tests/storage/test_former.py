"""Names that have moved work where they were, and say where they are."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

import syncswitch
from syncswitch import DeprecatedWarning
from tests.failing import fails

MOVED = {
    "syncswitch.trainers": "Data StreamedData Workload fit from_compiled PolicyCallback Observer",
    "syncswitch.searcher": "AdaptiveStrategy BinarySearchSampler PaperStrategy",
    "syncswitch.searcher.report": "ReportData load_report",
    "syncswitch.storage": "PolicyRegistry TrialStore TimingPolicy UserError open_database",
}


@pytest.mark.parametrize("module", MOVED)
def test_a_name_that_has_moved_is_the_same_and_warns(module: str) -> None:
    for name in MOVED[module].split():
        with pytest.warns(DeprecatedWarning) as caught:
            found = getattr(import_module(module), name)
        assert found is getattr(syncswitch, name)
        # What is imported for it may warn of its own dependencies.
        (warning,) = (one for one in caught if one.category is DeprecatedWarning)
        assert str(warning.message) == (
            f"{module}.{name} is deprecated since 0.2 and goes in 0.3; use syncswitch.{name}"
        )
        assert warning.filename == __file__


def test_what_is_for_packages_or_private_now_says_so() -> None:
    with pytest.warns(DeprecatedWarning, match=r"use syncswitch\.plugins\.TrialSpec$"):
        from syncswitch.storage import TrialSpec  # type: ignore[attr-defined]  # noqa: F401
    with pytest.warns(DeprecatedWarning, match="it is private now$"):
        from syncswitch.trainers import SimulatedTrainer  # type: ignore[attr-defined]  # noqa: F401


def test_a_name_that_never_was_is_none() -> None:
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        from syncswitch.trainers import nonsense  # type: ignore[attr-defined]  # noqa: F401


def test_the_guard_has_its_former_name_too(keras: Any) -> None:
    from syncswitch import PolicyCallback, fit

    with pytest.warns(DeprecatedWarning, match="^guard of PolicyCallback is called guarded since"):
        PolicyCallback(total_worker_steps=10, workers=2, guard=False)
    with (
        pytest.warns(DeprecatedWarning, match="^guard of fit is called guarded since 0.2"),
        fails("parameter-missing", "nothing says how long to train"),
    ):
        fit(None, [0.0], [0], guard=False)
