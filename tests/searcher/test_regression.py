"""Searches that are decided by metrics where less is better."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncswitch.searcher.api import search
from syncswitch.searcher.text.sentences import policy_text
from syncswitch.storage.errors import UserError
from syncswitch.storage.frames import trials
from syncswitch.storage.records.metric import Metric
from tests.searcher import regression_jobs


@pytest.mark.parametrize(
    ("name", "metric", "said"),
    [
        ("mae", Metric("MeanAbsoluteError", "min", "km", 0.0, None), " km"),
        ("loss", Metric("loss", "min", None, None, None), ""),
    ],
)
def test_a_job_with_less_of_its_metric_better_is_searched_to_its_policy(
    tmp_path: Path, name: str, metric: Metric, said: str
) -> None:
    url = f"sqlite:///{tmp_path / 'search.db'}"
    workload = getattr(regression_jobs, name)
    found = search(
        workload, trainer="simulated", workers=2, storage=url, threshold=0.05, settings=2
    )
    assert found.decided_by == metric
    # It learns the job all but exactly, and so loses nothing by an early switch.
    assert -0.05 < found.target_accuracy < 0
    assert found.switch_percent == 50.0
    assert {run.diverged for run in found.evidence} == {False}
    text = policy_text(found)
    assert f"up to 0.05{said} more is accepted" in text
    assert f"a {metric.name} of {-found.mean_accuracy:.4f}{said}" in text
    assert (trials(url)["converged_accuracy"] <= 0).all()


def test_how_much_worse_an_error_may_be_has_to_be_said(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'search.db'}"
    with pytest.raises(UserError, match=r"MeanAbsoluteError has no usual --threshold.*, in km"):
        search(regression_jobs.mae, trainer="simulated", workers=2, storage=url)
