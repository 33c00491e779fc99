"""Searches that are decided by metrics where less is better."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from syncswitch.searcher.api import search
from syncswitch.searcher.report.data import load_report
from syncswitch.searcher.search.policy_words import policy_text
from syncswitch.searcher.search.reporter import ReportedTrial, Reporter
from syncswitch.searcher.status import StatusReader
from syncswitch.searcher.strategies.baseline import measured_threshold
from syncswitch.storage.frames import evaluations, trials
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import Evaluation
from tests.failing import fails
from tests.identities import GENERATED
from tests.searcher import regression_jobs
from tests.searcher.command_line import Invoke

JOB = f"{regression_jobs.__file__}:mae"
NEEDED = ["--trainer", "simulated", "--workers", "2"]
CLUSTER: dict[str, Any] = {"trainer": "simulated", "workers": 2}

pytestmark = pytest.mark.usefixtures("one_model")


@pytest.mark.parametrize(
    ("name", "metric", "said"),
    [
        ("mae", Metric("MeanAbsoluteError", "min", "km", 0.0, None), " km"),
        ("loss", Metric("loss", "min", None, None, None), ""),
    ],
)
def test_a_job_with_less_of_its_metric_better_is_searched_to_its_policy(
    url: str, name: str, metric: Metric, said: str
) -> None:
    workload = getattr(regression_jobs, name)
    found = search(workload, storage=url, threshold=0.05, halvings=2, **CLUSTER)
    assert found.job.metric == metric
    # It learns the job all but exactly, and so needs no BSP.
    assert -0.05 < found.target_accuracy < 0
    assert found.switch_percent == 0.0
    assert {run.diverged for run in found.evidence} == {False}
    text = policy_text(found, GENERATED)
    assert f"up to 0.05{said} more is accepted" in text
    value = metric.text(found.measured.mean_accuracy)
    assert value.endswith(said)
    assert not value.startswith("-")
    assert f"a {metric.name} of {value}" in text
    assert (trials(url)["converged_accuracy"] <= 0).all()
    assert (trials(url)["converged_value"] >= 0).all()
    assert_shown_as_it_is(url, workload.name, metric, value)


def assert_shown_as_it_is(url: str, name: str, metric: Metric, mean: str) -> None:
    """No command shows its negative, and each says its name."""
    invoke = Invoke(SYNCSWITCH_STORAGE=url, COLUMNS="200")
    for command in (
        ["trials"],
        ["switch-points"],
        ["status", name, "--once"],
        ["policy", "list"],
        ["policy", "show", name, "--why"],
    ):
        done = invoke.succeeds(*command)
        assert metric.name in done.output
        # Of a loss nobody knows that it cannot be below 0, so a run may be expected there.
        lines = [one for one in done.output.splitlines() if " ends between " not in one]
        assert re.search(r"(?<![\w.])-\d", "\n".join(lines)) is None, done.output
        assert command == ["trials"] or mean.removesuffix(" km") in done.output
        if "show" not in command:
            rows = invoke.answer(*command)
            assert {(row["metric"], row["metric_goal"]) for row in rows} == {(metric.name, "min")}


@pytest.mark.parametrize(
    ("name", "metric", "further"),
    [
        (
            "mse",
            Metric("MeanSquaredError", "min", None, 0.0, None),
            ["RootMeanSquaredError", "mae"],
        ),
        ("auc", Metric("AUC", "max", None, 0.0, 1.0), ["accuracy", "loss", "perplexity"]),
        ("surprise", Metric("Perplexity", "min", None, 1.0, None), ["AUC"]),
    ],
)
def test_metrics_of_any_direction_and_range_decide(
    url: str, name: str, metric: Metric, further: list[str]
) -> None:
    workload = getattr(regression_jobs, name)
    least = {"strategy": "paper", "halvings": 1, "runs": 1}
    found = search(workload, storage=url, threshold=0.05, **least, **CLUSTER)
    assert found.job.metric == metric
    assert found.switch_percent == 50.0
    reached = metric.text(found.measured.mean_accuracy)
    said = f"It reached {metric.with_article} of {reached} (1 run)"
    assert said in policy_text(found, GENERATED)
    tests = evaluations(url, fingerprint=found.job.fingerprint)
    assert load_report(url, found.job.fingerprint).answer == found
    first, last = tests["value"].iloc[0], tests["value"].iloc[-1]
    assert (last < first) == (metric.goal == "min")
    measured = [json.loads(one) for one in tests["further"].dropna()]
    assert [sorted(one) for one in measured] == [further] * len(tests)
    if name == "mse":
        roots = [one["RootMeanSquaredError"] for one in measured]
        assert roots == pytest.approx(tests["value"] ** 0.5)


def test_a_sweep_has_threshold_and_target_in_the_unit_of_the_metric(url: str) -> None:
    sweep = ["sweep", JOB, *NEEDED, "--at", "50,0", "--runs", "1"]
    invoke = Invoke(*sweep, SYNCSWITCH_STORAGE=url)
    assert "--runs is 1: no threshold for MeanAbsoluteError is given" in invoke().stderr
    impossible = invoke("--threshold", "2", "--target-accuracy", "-1")
    assert "-1: give a value that MeanAbsoluteError can have, 0 or more" in impossible.stderr
    given = ("--threshold", "2", "--target-accuracy", "1.5")
    *_, said = invoke.succeeds(*given).stdout.splitlines()
    assert said.endswith(": 1.5000 km (as given); kept runs are at most 2 km worse.")
    rows = invoke.answer(*given)
    assert [row["target_value"] for row in rows] == [1.5, 1.5]
    assert [row["kept_runs"] for row in rows] == [1, 1]
    assert all(row["mean_value"] > 0 and "mean_accuracy" not in row for row in rows)


def test_how_much_worse_an_error_may_be_is_measured_where_nobody_says_it(tmp_path: Path) -> None:
    """The same after an interruption, by several commands, and in all that they show."""
    urls = [f"sqlite:///{tmp_path / name}.db" for name in ("whole", "parts")]

    here, there = (Invoke(SYNCSWITCH_STORAGE=url, COLUMNS="200") for url in urls)

    class Impatient(Reporter):
        """Presses Ctrl-C in the third run."""

        def on_evaluation(self, trial: ReportedTrial, evaluation: Evaluation) -> None:
            if trial.number == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(JOB, storage=urls[1], reporter=Impatient(), **CLUSTER)
    (begun,) = there.answer("status", "--once")
    assert begun["threshold"] == 0
    assert "threshold not measured yet" in there("status", "--once").stdout
    found = [invoke.answer("run", JOB, *NEEDED) for invoke in (here, there)]
    whole, parts = (one["policy"] for one in found)
    threshold = whole["threshold"]
    evidence = [
        -one["converged_value"] for one in whole["evidence"] if one["switch_percent"] == 100
    ]
    assert threshold == measured_threshold(evidence)
    assert (parts["threshold"], parts["switch_percent"]) == (threshold, whole["switch_percent"])
    assert found[0]["search"]["threshold_is_measured"]
    said = f"up to {threshold:g} km worse is accepted"
    assert said in here("run", JOB, *NEEDED).stdout
    name = regression_jobs.mae.name
    assert said in here("policy", "show", name, "--why").stdout
    why = here.answer("policy", "show", name, "--why")
    (status,) = here.answer("status", "--once")
    assert threshold == status["threshold"] == why["why"]["threshold"]
    data = load_report(urls[0], name)
    assert data.acceptance.goal.threshold == threshold
    swept = here.answer("sweep", JOB, *NEEDED, "--at", "50", "--runs", "3")
    assert {row["threshold"] for row in swept} == {threshold}
    given = search(JOB, storage=urls[0], threshold=1.5, **CLUSTER)
    assert given.threshold == 1.5


def test_a_job_whose_runs_never_differ_has_to_be_told(url: str) -> None:
    with fails("parameter-missing", "3 runs without a switch measured the same"):
        search(regression_jobs.constant, storage=url, **CLUSTER)
    (status,) = StatusReader(url).read()
    assert status.state == "no threshold"
