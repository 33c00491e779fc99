"""A job of which nothing is known, as its user meets it: the first training, third and fifth."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncswitch.cli.run.main import main as run
from syncswitch.cli.search.main import main as search
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.trainers.model.kept import kept_for_the_next
from tests.tiny_job import write_tiny_job


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its reference; what is compiled is kept meanwhile."""
    monkeypatch.chdir(tmp_path)
    with kept_for_the_next():
        yield write_tiny_job(tmp_path)


def invoked(program: object, *words: str) -> Result:
    made = CliRunner().invoke(program, words)  # type: ignore[arg-type]
    assert made.exit_code == 0, made.output
    return made


def trained(job: str, *options: str) -> Result:
    return invoked(run, job, "--trainer", "simulated", "--workers", "2", *options)


def words_of(made: Result) -> str:
    return " ".join(made.output.split())


def test_the_first_training_needs_no_search_and_says_what_is_not_known(job: str) -> None:
    said = words_of(trained(job))
    assert (
        "this run, with seed 0, switches to ASP at 12.5 %, which should be fastest for the 3"
        " runs to come, judging by 7 recorded jobs. No run of BSP alone has measured a target"
        " yet, so it is guarded by its own evaluations; a failed switch costs what was trained"
        " after it."
    ) in said
    expected = "Expected from those jobs, not measured on this one: "
    # Before the run; in its closing lines its own pace counts.
    assert said.count(expected) == 1
    rests_on = "by other jobs and these runs, none of them with BSP alone."
    assert said.count(rests_on) == 1
    assert "; target" not in said
    why = words_of(invoked(search, "policy", "show", "tiny", "--why"))
    assert "No target is measured: BSP alone has not trained this job." in why
    assert "before the first run from 7 recorded jobs (digits with four networks" in why
    again = words_of(trained(job))
    assert expected not in again
    assert again.count(rests_on) == 2
    assert "judging by 7 recorded jobs and its own runs." in again
    use, _ = json.loads(invoked(search, "uses", "list", "--json").stdout)
    assert (use["kept"], use["target_accuracy"]) == (None, None)


def test_a_few_trainings_buy_no_run_of_the_first_protocol_alone_and_many_do(job: str) -> None:
    for _ in range(3):
        few = json.loads(trained(job, "--json").stdout)
        assert few["switch_percent"] < 50
        assert few["reaches_target"] is None
        assert few["policy"]["target_accuracy"] is None
        assert few["time_to_accuracy_seconds"] is None
    said = words_of(trained(job, "--expected-runs", "40"))
    assert "uses BSP alone: it measures the target for the 36 runs after it" in said
    assert "the target is measured: BSP alone reached an accuracy of" in said
    fifth = json.loads(trained(job, "--expected-runs", "40", "--json").stdout)
    assert fifth["policy"]["target_accuracy"] is not None
    uses = json.loads(invoked(search, "uses", "list", "--json").stdout)
    assert len(uses) == 5
    # The runs before it are judged by the target, too.
    assert all(isinstance(one["kept"], bool) for one in uses)


def test_a_metric_without_a_usual_threshold_takes_the_gain_at_once(job: str) -> None:
    path = Path(job.partition(":")[0])
    path.write_text(path.read_text().replace('name="tiny",', 'name="tiny",\n    metric="loss",'))
    said = words_of(trained(job))
    little = "its own evaluations, which without a threshold notice little but a run that diverges"
    assert f"yet, so it is guarded by {little};" in said
    by_chance = "no worse than BSP's own models are by chance (how much that is in loss is not"
    assert said.count(by_chance) == 2
    assert json.loads(trained(job, "--json").stdout)["switch_percent"] < 100
    for command in ("show", "list"):
        invoked(search, "policy", command, *(["tiny", "--why"] if command == "show" else []))
    invoked(search, "report", "tiny", "-o", "report.html")
    uses = json.loads(invoked(search, "uses", "list", "--json").stdout)
    assert [one["kept"] for one in uses] == [None, None]
    said = words_of(trained(job, "--expected-runs", "100"))
    assert "uses BSP alone: it is one of the 3 runs that measure the target, and how much" in said


def test_who_wants_the_first_protocol_alone_gets_it(job: str) -> None:
    said = words_of(trained(job, "--switch-at", "100"))
    assert "with BSP alone as you asked" in said
    with open_database("sqlite:///syncswitch.db", create=True) as database:
        assert PolicyRegistry(database).policies() == []
