"""What MLflow is told of a run, wherever it comes from."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from syncswitch.storage.database.engine import Database
from syncswitch.storage.export.mlflow import (
    Point,
    check_mlflow,
    search_copy,
    shown_uri,
    trial_copy,
    use_copy,
)
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.trial import Evaluation
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.uses.store import record_use, uses
from tests.failing import fails
from tests.records import changed
from tests.storage.conftest import IDENTITY, POLICY, RECORD, SEARCH, use_of


def test_a_use_is_the_same_from_the_run_itself_and_from_the_database(database: Database) -> None:
    TrialStore(database).register(IDENTITY, "digits", SEARCH)
    policy = PolicyRegistry(database).publish(POLICY)
    use = use_of(policy, 3)
    assert record_use(database, use)
    (stored,) = uses(database, IDENTITY.fingerprint)
    curve = TrialStore(database).curves(IDENTITY.fingerprint, of_uses=True)[stored.trial_id]
    from_database = trial_copy(stored, curve)
    record = use.record
    from_run = use_copy("use-3", record, policy.version)
    assert from_run == from_database
    assert [point.value for point in from_run.points if point.name == "accuracy"] == [0.8, 0.9]


def test_what_is_not_finite_is_no_point() -> None:
    tests = (Evaluation(500, 2.0, 0.8, math.nan),)
    copy = use_copy("use-1", replace(RECORD, evaluations=tests), None)
    assert copy.points[:2] == (
        Point("accuracy", 0.8, 500, 2.0),
        Point("elapsed_seconds", 2.0, 500, 2.0),
    )
    assert (copy.name, copy.parent) == ("use of 50 %, seed 11", None)


def test_an_error_has_its_own_values_under_its_name() -> None:
    error = {"metric": "mae", "metric_goal": "min", "metric_unit": "km", "metric_highest": None}
    spec = replace(RECORD.spec, identity=changed(IDENTITY, **error))
    tests = (Evaluation(500, 2.0, -3.0, math.nan, (("accuracy", 0.5), ("top_accuracy", 0.9))),)
    record = replace(RECORD, spec=spec, evaluations=tests, converged_accuracy=-2.5, phases=())
    copy = use_copy("use-1", record, None)
    values = {point.name: point.value for point in copy.points}
    assert (values["accuracy"], values["mae"]) == (-3.0, 3.0)
    assert (values["top_accuracy"], "top_mae" in values) == (0.9, False)
    assert (values["converged_accuracy"], values["converged_mae"]) == (-2.5, 2.5)
    tags = {name: text for name, text in copy.tags.items() if "metric" in name}
    assert tags == {
        "syncswitch.metric": "mae",
        "syncswitch.metric_goal": "min",
        "syncswitch.metric_unit": "km",
    }
    # A policy from elsewhere has a run with what is known.
    policy = changed(POLICY, mean_accuracy=-2.0)
    found = search_copy("1", spec.identity, None, None, policy)
    assert Point("policy/mean_mae", 2.0, 0, 0.0) in found.points
    assert found.tags["syncswitch.policy_version"] == "1"
    assert "strategy" not in found.parameters


@pytest.mark.parametrize("rule", ["own", "same", None])
def test_runs_say_the_momentum_after_the_switch(rule: str | None) -> None:
    identity = changed(IDENTITY, momentum_after_switch=rule)
    used = replace(RECORD, spec=replace(RECORD.spec, identity=identity))
    for copy in (use_copy("use-1", used, None), search_copy("1", identity, None, None, POLICY)):
        assert copy.parameters["momentum_after_switch"] == rule


def test_no_password_is_shown() -> None:
    assert shown_uri("http://me:secret@host:5000/a") == "http://***@host:5000/a"
    check_mlflow("http://me:secret@host:5000/a")
    with fails("parameter-invalid", "mlflow is 'mlruns': it is not a tracking URI of MLflow"):
        check_mlflow("mlruns")
