"""Values that pass between the parts: jobs, metrics, what policies and guards say of them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from syncswitch.storage.columns import TrialFacts
from syncswitch.storage.queries.policies import PolicyUseFacts
from syncswitch.storage.queries.run_rows import EvaluationFacts
from syncswitch.storage.queries.summaries import SwitchPointStatistics
from syncswitch.storage.records.flat import columns, flat
from syncswitch.storage.records.guard import Band, BandPoint, BelievedBand, later_switch_points
from syncswitch.storage.records.job import (
    OWN_MOMENTUM,
    SEMI_SYNC,
    ScheduledJob,
    protocol_label,
    protocol_text,
)
from syncswitch.storage.records.metric import VALUE_NAMES, WORST, Metric, metric_name
from syncswitch.storage.records.policy import Evidence, TimingPolicy
from tests.identities import GENERATED, UNRECORDED
from tests.records import changed

IMPORTED = changed(
    GENERATED, name="golden", total_worker_steps=200, workers=2, **dict.fromkeys(UNRECORDED)
)
SIMULATED = changed(GENERATED, simulated_cluster="5" * 64)


@pytest.mark.parametrize(
    ("identity", "fingerprint"),
    [
        (GENERATED, "45c7b69715af8f7a1a955730d76ca5827511332eb882ad8d4bcac53497f8f376"),
        (IMPORTED, "b45ad19e58e4f33a66c52508fc86db4039d6c7f104a75ba63ec3c5ce992884b0"),
        (SIMULATED, "7d04573e59a14d7cc802199a834e6ab9ef34f33afd778690840793fa41df123a"),
    ],
    ids=["real", "imported", "simulated"],
)
def test_a_fingerprint_never_changes(identity: ScheduledJob, fingerprint: str) -> None:
    """The databases of all revisions hold these."""
    assert identity.fingerprint == fingerprint


def test_everything_but_the_name_and_the_protocols_enters_the_fingerprint() -> None:
    metric = {
        "metric_goal": "min",
        "metric_unit": "km",
        "metric_lowest": 1.0,
        "metric_highest": 9.0,
    }
    known = changed(SIMULATED, **metric, momentum_after_switch="own")
    for name, value in flat(known).items():
        other = f"{value}x" if isinstance(value, str) else value * 2
        is_same = changed(known, **{name: other}).fingerprint == known.fingerprint
        assert is_same == (name in ("name", *flat(known.protocols))), name


def test_a_cluster_in_words_says_that_it_is_simulated() -> None:
    assert GENERATED.cluster == "4 workers, bsp,asp"
    assert SIMULATED.cluster == "4 simulated workers, bsp,asp"


def test_a_command_has_steps_processes_and_ways() -> None:
    job = changed(GENERATED, data_set=None, batch_size=None, first_protocol="first")
    assert job.is_command
    assert (job.length, job.cluster) == ("3,000 steps", "4 processes, first,asp")
    single = changed(job, workers=1)
    assert (single.size, single.cluster, single.job.sized_name) == (
        "1 process",
        "first,asp",
        job.name,
    )
    assert GENERATED.length == "3,000 worker-steps"
    assert GENERATED.job.sized_name == "generated on 4 workers"
    # Nobody wrote down what an imported job trains.
    assert not changed(job, model=None).is_command
    names = ("first", "second", "bsp", "local-sgd:8:zeroed")
    protocols = ["BSP", "LOCAL-SGD:8:zeroed"]
    assert [*map(protocol_text, names)] == ["the first way", "the second way", *protocols]
    assert [*map(protocol_label, names)] == ["first way", "second way", *protocols]


ERROR = Metric("MeanAbsoluteError", "min", "km", 0.0, None)


def test_what_is_compared_is_better_where_it_is_more() -> None:
    assert Metric().accuracy(0.9) == 0.9
    assert ERROR.accuracy(2.5) == -2.5
    assert ERROR.value(-2.5) == 2.5
    assert math.copysign(1, ERROR.accuracy(0.0)) == 1  # no -0.0


@pytest.mark.parametrize(
    ("metric", "limits", "worst"),
    [
        (Metric(), (0.0, 1.0), 0.0),
        (ERROR, (None, 0.0), WORST),
        (Metric("R2Score", "max", None, None, 1.0), (None, 1.0), WORST),
        (Metric("share of errors", "min", None, 0.0, 1.0), (-1.0, 0.0), -1.0),
    ],
)
def test_limits_are_those_of_what_is_compared(
    metric: Metric, limits: tuple[float | None, float | None], worst: float
) -> None:
    assert metric.accuracies == limits
    assert metric.worst_accuracy == worst
    assert [metric.is_possible(one) for one in (math.nan, math.inf, -math.inf)] == [False] * 3
    assert [metric.is_possible(one) for one in limits if one is not None].count(False) == 0


def test_values_are_shown_in_their_unit() -> None:
    assert Metric().text(0.91234) == "0.9123"
    assert ERROR.text(-2.5) == "2.5000 km"
    assert ERROR.text(-12345.678) == "12,345.7 km"
    assert ERROR.text(-0.00012345) == "0.000123 km"
    assert [Metric().text(0.001), ERROR.text(0.0)] == ["0.0010", "0.0000 km"]
    assert [ERROR.range_text, Metric().range_text] == ["0 or more", "from 0 to 1"]


@pytest.mark.parametrize(
    "record",
    [TrialFacts, TimingPolicy, Evidence, SwitchPointStatistics, PolicyUseFacts, EvaluationFacts],
)
def test_each_column_of_an_accuracy_has_one_of_values(record: type) -> None:
    accuracies = {one.name for one in columns(record) if one.kind is float} - {"sd_accuracy"}
    accuracies = {name for name in accuracies if name.endswith("accuracy")}
    assert accuracies
    assert accuracies <= VALUE_NAMES.keys()


NEGATED = ("mean_accuracy", "lower_accuracy", "upper_accuracy", "target_accuracy", "accuracies")


def test_rows_have_the_values_beside_what_is_compared() -> None:
    row = {
        "study": "kilometres",
        "mean_accuracy": -2.5,
        "sd_accuracy": 0.5,
        "lower_accuracy": -3.0,
        "upper_accuracy": -2.0,
        "target_accuracy": None,
        "keeps_accuracy": True,
        "accuracies": (-2.0, -3.0),
    }
    assert ERROR.with_values(row) == {
        **row,
        "mean_value": 2.5,
        "lower_value": 2.0,
        "upper_value": 3.0,
        "target_value": None,
        "values": [2.0, 3.0],
    }
    document = ERROR.document({"runs": [row], "accuracy": -2.5, "seconds": -1.0})
    assert (document["value"], document["seconds"], "accuracy" in document) == (2.5, -1.0, False)
    assert document["runs"] == [
        {name: value for name, value in ERROR.with_values(row).items() if name not in NEGATED}
    ]
    assert Metric().document({"accuracy": 0.9}) == {"accuracy": 0.9, "value": 0.9}
    naming = {"metric": "MeanAbsoluteError", "metric_goal": "min", "metric_unit": "km"}
    assert ERROR.naming == naming


def test_a_metric_has_its_article() -> None:
    with_a = ("loss", "MeanAbsoluteError", "mae", "perplexity", "UAR")
    assert [Metric(name).with_article for name in with_a] == [f"a {name}" for name in with_a]
    with_an = ("accuracy", "AUC", "R2Score", "F1Score", "IoU", "MSE")
    assert [Metric(name).with_article for name in with_an] == [f"an {name}" for name in with_an]


def test_titles_say_unit_and_direction() -> None:
    assert ERROR.axis_title == "MeanAbsoluteError in km (less is better)"
    assert [Metric().axis_title, ERROR.title] == ["accuracy", "MeanAbsoluteError in km"]
    words = ["are at most 2 km worse", "lose at most 0.01 of it"]
    assert [ERROR.lose_at_most(2.0), Metric().lose_at_most(0.01)] == words


@pytest.mark.parametrize(
    ("description", "name"),
    [
        (None, "accuracy"),
        ("loss", "loss"),
        ('{"class":"AUC","curve":"PR"}', "AUC"),
        (json.dumps({"output": "kind", "metric": '{"class":"AUC"}'}), "AUC"),
        (json.dumps({"output": "kind", "metric": "accuracy"}), "accuracy"),
        ("{", "accuracy"),
        ("{}", "accuracy"),
    ],
)
def test_a_metric_is_called_by_its_class(description: str | None, name: str) -> None:
    assert metric_name(description) == name


@pytest.mark.parametrize(
    ("percent", "later"),
    [
        (0.0, (1.5625, 3.125, 6.25, 12.5, 25.0, 50.0)),
        (6.25, (12.5, 25.0, 50.0)),
        (37.5, (50.0,)),
        (50.0, ()),
        (100.0, ()),
    ],
)
def test_a_run_that_fails_switches_again_at_the_halvings_that_are_later(
    percent: float, later: tuple[float, ...]
) -> None:
    assert later_switch_points(percent) == later


@pytest.mark.parametrize(("percent", "later"), [(0, (25.0,)), (12.5, (25.0,)), (25, ()), (50, ())])
def test_with_a_momentum_for_each_worker_it_switches_again_once(
    percent: float, later: tuple[float, ...]
) -> None:
    assert later_switch_points(percent, OWN_MOMENTUM) == later
    assert later_switch_points(percent, SEMI_SYNC) == later


@pytest.mark.parametrize(
    "band",
    [
        Band(0.9, 0.01, 2, (BandPoint(500, 0.8, 0.0),)),
        Band(None, 0.0),
        BelievedBand(0.9, 0.01, 2, (BandPoint(500, 0.8, 0.1),), 0.003),
    ],
)
def test_a_band_is_the_same_after_json(band: Band) -> None:
    found = Band.of(json.loads(json.dumps(asdict(band))))
    assert found == band
    assert found.margin == band.margin
