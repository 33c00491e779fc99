"""What is experimental is said in the same words: to programs, in the help, on the page."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from syncswitch import ExperimentalWarning, UserError, search, train
from syncswitch.cli.run.main import main as run
from syncswitch.cli.search.main import main as searches
from syncswitch.searcher.experimental import FEATURES, used_features
from tests.searcher.command_line import commands

PAGE = Path(__file__).parents[2] / "docs/formats.md"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({}, []),
        ({"online": "none", "mlflow": None, "protocols": None, "trainer": "local"}, []),
        ({"protocols": "bsp,local-sgd:8"}, []),
        ({"trainer_options": {"launcher": "processes", "gpus_per_worker": 0}}, []),
        ({"online": "greedy", "mlflow": "http://there"}, ["online", "mlflow"]),
        ({"protocols": "bsp,qsr:8:0.1:semi-sync:growing"}, ["protocols"]),
        ({"protocols": ["bsp,asp", "bsp,local-sgd:8:semi-sync:growing"]}, ["protocols"]),
        (
            {"trainer": "ray", "trainer_options": {"gpus_per_worker": 0.5}},
            ["trainer", "gpus_per_worker"],
        ),
        ({"trainer_options": {"launcher": "tf-config"}}, ["launcher"]),
    ],
)
def test_these_values_are_experimental(given: dict[str, Any], used: list[str]) -> None:
    found = [feature.parameter for feature, _ in used_features(given)]
    assert found == used


@pytest.mark.parametrize(
    "given",
    [
        {"online": "fast"},
        {"online": 1},
        {"online": ["greedy"]},
        {"protocols": 1},
        {"protocols": [1]},
        {"protocols": "bsp,growing"},
        {"protocols": "bsp,qsr:growing"},
        {"mlflow": 5},
        {"trainer_options": {"gpus_per_worker": -1}},
        {"trainer_options": {"gpus_per_worker": "one"}},
    ],
)
def test_a_value_that_will_be_refused_is_not_experimental(given: dict[str, Any]) -> None:
    assert list(used_features(given)) == []


def test_a_call_is_warned_at_its_own_line_and_no_other_is(url: str) -> None:
    job: dict[str, Any] = {"storage": url, "workers": 2}
    with pytest.raises(UserError), pytest.warns(ExperimentalWarning) as caught:
        search("no_such_file.py:job", online="greedy", **job)
    (warning,) = caught
    assert str(warning.message) == (
        "online='greedy' is experimental since 0.2: it may change or go in any version"
    )
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExperimentalWarning)
        with pytest.raises(UserError):
            train("no_such_file.py:job", **job)
        with pytest.raises(UserError, match=r"^online is 'fast'"):
            search("no_such_file.py:job", online="fast", **job)  # type: ignore[arg-type]


def test_the_page_names_each_feature_and_its_version() -> None:
    rows = re.findall(r"^\| `(\w+)`([^|]*) \| (\d\.\d) \|", PAGE.read_text(), re.MULTILINE)
    stated = {(name, text.partition(",")[0].strip(), since) for name, text, since in rows}
    assert {(one.parameter, one.what, one.since) for one in FEATURES} == stated


def test_the_help_of_each_option_says_so() -> None:
    named = {feature.parameter for feature in FEATURES}
    for path, command in (*commands(searches, "search"), *commands(run, "run")):
        makes_runs = any(option.name == "trainer" for option in command.params)
        for option in command.params:
            if option.name in named and (makes_runs or option.name == "mlflow"):
                said = getattr(option, "help", "") or ""
                assert "xperimental" in said, f"{' '.join(path)} {option.name}"
