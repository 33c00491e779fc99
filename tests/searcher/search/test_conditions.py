"""Searches under unusual conditions, and how these are shown."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pytest
from command_line import Invoke, error_line
from generated_trainer import GeneratedTrainer
from searches import SINGLE, search

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.storage import frames
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import TrialSpec
from tests.storage.filled import CONDITIONS, EVENTS, add_disturbed

pytestmark = pytest.mark.usefixtures("our_tables")


def asked_for(url: str, plan: SearchPlan, folder: Path) -> list[TrialSpec]:
    trainer = GeneratedTrainer()
    search(url, trainer, plan, checkpoints=folder)
    return trainer.specs


def test_every_run_trains_under_the_conditions_and_a_forecast_is_of_undisturbed_ones(
    invoke: Invoke, url: str, tmp_path: Path
) -> None:
    forecast = ["run", "any", "--halvings", "1", "--dry-run", "--json"]
    specs = asked_for(url, replace(SINGLE, conditions=CONDITIONS), tmp_path)
    assert [spec.conditions for spec in specs] == [CONDITIONS] * 3
    error_line(invoke(*forecast))
    assert [spec.conditions for spec in asked_for(url, SINGLE, tmp_path)] == [RunConditions()] * 3
    invoke.succeeds(*forecast)


@pytest.mark.parametrize("conditions", [RunConditions(), CONDITIONS, RunConditions("greedy")])
def test_disturbed_runs_share_no_prefix(
    url: str, tmp_path: Path, conditions: RunConditions
) -> None:
    specs = asked_for(url, SearchPlan(AdaptiveStrategy(2, 1), conditions=conditions), tmp_path)
    shares = conditions == RunConditions()
    assert any(spec.checkpoint_percents for spec in specs) == shares
    assert any(spec.checkpoint_directory for spec in specs) == shares


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A read-only database with a search under usual and one under unusual conditions."""
    folder = tmp_path_factory.mktemp("disturbed")
    url = f"sqlite:///{folder}/disturbed.db"
    asked_for(url, SINGLE, folder)
    add_disturbed(url)
    return url


UNDER = "elastic, restart, straggler:worker=1,at=10%,for=5s,delay=30ms; kill:ps,at=60%"


class TestShown:
    @pytest.fixture
    def url(self, disturbed: str) -> str:
        """The database that `invoke` uses."""
        return disturbed

    def test_conditions_where_a_run_has_some(self, invoke: Invoke) -> None:
        for command in ("trials", "status"):
            usual = invoke(command, "generated").stdout
            assert "under" not in usual
            shown = invoke(command).stdout
            assert shown.splitlines()[0].split()[-1] == "under"
            assert "elastic, restart," in shown
            documents = invoke.answer(command, "disturbed")
            for document in documents:
                assert (document["online"], document["switch_mechanism"]) == ("elastic", "restart")
                assert document["injections"] == "; ".join(CONDITIONS.injections)
        tables = invoke("switch-points").stdout
        assert tables.count("switch at") == 2
        assert f"], {UNDER}\n" in tables

    def test_events(self, invoke: Invoke, disturbed: str, tmp_path: Path) -> None:
        tables = invoke("trials", "disturbed", "--events").stdout.split("\n\n")
        head, columns, _, *rows = tables[1].splitlines()
        assert head.endswith(f" 1, disturbed, 50 % [{UNDER}]")
        assert columns.split() == ["event", "worker", "step", "seconds", "took", "reason"]
        assert [" ".join(row.split()) for row in rows] == [
            "detected 1 400 6.2 - worker 1: 2.1 worker-steps/s, median 9.8",
            "removed 1 400 6.2 0.12 s elastic: 3 of 4 workers go on",
            "rebuilt - 1800 40.5 - server killed; from the checkpoint of worker-step 1500",
        ]
        assert invoke("trials", "--events").stdout.count("detected") == 3
        expected = "nothing happened to any run of generated\n"
        assert invoke("trials", "generated", "--events").stdout == expected
        documents = invoke.answer("trials", "--events")
        names = list(asdict(EVENTS[0]))
        assert [{name: row[name] for name in names} for row in documents] == [
            asdict(event) for event in EVENTS
        ] * 3
        path = tmp_path / "events.parquet"
        invoke("trials", "--events", "--format", "parquet", "-o", str(path))
        pd.testing.assert_frame_equal(pd.read_parquet(path), frames.events(disturbed))
