"""A job that is learnt from its runs: from nothing to a policy, in a database."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from syncswitch.searcher.learning import (
    NextRun,
    after_use,
    first_policy,
    next_run,
    simulated_policy,
    used_job,
)
from syncswitch.searcher.strategies.baseline import measured_threshold
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.guard import GuardOutcome
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialRecord
from syncswitch.storage.records.use import whole_use
from syncswitch.storage.trials.workloads import register_workload
from syncswitch.storage.uses.store import record_use, uses, uses_of
from tests.storage.conftest import IDENTITY, POLICY, RECORD, sent_back
from tests.warm_server import at_once

W = IDENTITY.total_worker_steps
GOOD_FROM_PERCENT = 25.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/job.db"


def planned_run(
    url: str, expected_uses: int = 30, identity: WorkloadIdentity = IDENTITY
) -> NextRun:
    with open_database(url, create=True) as database:
        return next_run(database, identity, expected_uses)


def published(url: str, made: TrialRecord, begins_from: TimingPolicy | None = None) -> TimingPolicy:
    identity = made.spec.identity
    with open_database(url, create=True) as database:
        policy = first_policy(database, identity, "digits", made, begins_from)
    assert policy is not None
    return policy


def trained(planned: NextRun, number: int = 0) -> TrialRecord:
    """One whole run; with too early a switch it is sent back."""
    percent = planned.switch_percent
    switch = round(W * percent / 100)
    phases = [PhaseRecord("bsp", 0, switch, 10.0 * switch / W, 0.0, 0)] if switch else []
    if switch < W:
        phases.append(PhaseRecord("asp", switch, W, 4.0 * (W - switch) / W, 1.0, 3))
    accuracy = 0.9 + 0.002 * (-1) ** number
    return replace(
        RECORD,
        spec=replace(RECORD.spec, switch_percent=percent, seed=number, replicate=0),
        evaluations=tuple(Evaluation(step, step / 100, accuracy, 0.3) for step in (500, W)),
        phases=tuple(phases),
        converged_accuracy=accuracy,
        stopped_early=False,
        inherited_seconds=0.0,
        guard=GuardOutcome(percent) if percent >= GOOD_FROM_PERCENT else sent_back(percent),
    )


def record(url: str, policy: TimingPolicy, made: TrialRecord, expected_uses: int = 30) -> list[str]:
    """Records the use of a policy; gives what is said after it."""
    use = whole_use(policy, uuid.uuid4().hex, made)
    assert use is not None
    with open_database(url, create=False) as database:
        assert record_use(database, use)
        return after_use(database, policy, expected_uses)


def make_run(url: str, expected_uses: int = 30) -> NextRun:
    """As syncswitch-run --learn does it."""
    planned = planned_run(url, expected_uses)
    with open_database(url, create=False) as database:
        made = trained(planned, len(uses(database, IDENTITY.fingerprint)))
    record(url, planned.policy or published(url, made), made, expected_uses)
    return planned


def versions(url: str) -> list[TimingPolicy]:
    with open_database(url, create=False) as database:
        return PolicyRegistry(database).policies()[::-1]


def test_from_nothing_to_a_policy(url: str) -> None:
    plans = [make_run(url)]
    assert plans[0] == NextRun(None, 100.0, learns=True)
    (first,) = versions(url)
    assert (first.switch_percent, first.target_accuracy) == (100.0, 0.902)
    assert first.reason == "nothing but the first protocol alone was tried so far"
    while len(versions(url)) == 1:
        plans.append(make_run(url))
        assert len(plans) < 15
    # All later ones are guarded, by all runs of the first protocol that there are.
    assert all(plan.band is not None and plan.band.curve for plan in plans[1:])
    answer = versions(url)[-1]
    assert (answer.switch_percent, answer.version) == (GOOD_FROM_PERCENT, 2)
    assert answer.confidence is not None
    assert answer.confidence >= 0.7
    later = [make_run(url).switch_percent for _ in range(6)]
    assert set(later) == {GOOD_FROM_PERCENT}
    assert len(versions(url)) == 2
    with open_database(url, create=False) as database:
        assert uses_of(database, answer).uses == len(later)
        assert uses_of(database, first).uses == len(plans)


def test_after_all_uses_it_answers_with_what_it_knows(url: str) -> None:
    for _ in range(3):
        make_run(url, 3)
    answer = versions(url)[-1]
    assert answer.version == 2
    assert make_run(url, 3).switch_percent == answer.switch_percent


def test_a_first_run_that_diverged_teaches_nothing(url: str) -> None:
    made = replace(trained(planned_run(url)), diverged=True)
    with open_database(url, create=False) as database:
        assert first_policy(database, IDENTITY, "digits", made) is None
    assert planned_run(url) == NextRun(None, 100.0, learns=True)


def test_learning_goes_on_after_a_search(url: str) -> None:
    with open_database(url, create=True) as database:
        register_workload(database, IDENTITY, "digits")
        found = PolicyRegistry(database).publish(replace(POLICY, guarded=True))
    planned = planned_run(url, 1000)
    assert planned.policy == found
    assert planned.switch_percent != found.switch_percent
    assert planned_run(url, 1).policy == found


def begun(url: str, held_percent: float) -> list[TimingPolicy]:
    """A simulated policy at 12.5 %, and what the first real run made of it."""
    simulated = replace(IDENTITY, simulated_cluster="9" * 64)
    found = replace(POLICY, fingerprint=simulated.fingerprint, guarded=True, switch_percent=12.5)
    with open_database(url, create=True) as database:
        register_workload(database, simulated, "digits")
        PolicyRegistry(database).publish(found)
    planned = planned_run(url)
    assert (planned.policy, planned.switch_percent) == (None, 12.5)
    assert planned.begins_from is not None
    assert planned.band is not None
    failed = sent_back(12.5)
    guard = GuardOutcome(held_percent, () if held_percent == 12.5 else failed.failed)
    made = replace(trained(planned), guard=guard)
    record(url, published(url, made, planned.begins_from), made)
    return [one for one in versions(url) if one.fingerprint == IDENTITY.fingerprint]


@pytest.mark.parametrize("held_percent", [12.5, 50.0, 100.0])
def test_the_first_real_run_confirms_or_corrects_what_simulated_ones_found(
    url: str, held_percent: float
) -> None:
    first = begun(url, held_percent)[0]
    assert first.switch_percent == held_percent
    assert first.target_accuracy == POLICY.target_accuracy
    assert first.evidence == ()
    with open_database(url, create=False) as database:
        seen = used_job(database, first).observations()
        # What a switch keeps, and what it costs, the real run alone says.
        assert [(run.switch_percent, run.alarmed) for run in seen] == (
            [(12.5, False)] if held_percent == 12.5 else [(12.5, True), (held_percent, False)]
        )
        other = replace(IDENTITY, simulated_cluster="8" * 64)
        assert simulated_policy(database, other) is None


def test_a_job_whose_metric_has_no_usual_threshold_measures_it_in_its_first_runs(url: str) -> None:
    identity = replace(
        IDENTITY, metric="mae", metric_goal="min", metric_highest=None, metric_unit="km"
    )
    accuracies = iter((-2.0, -2.2, -1.9, -2.1, -2.0))

    told: list[list[str]] = []

    def make() -> NextRun:
        planned, accuracy = planned_run(url, identity=identity), next(accuracies)
        made = trained(planned, len(told))
        made = replace(
            made,
            spec=replace(made.spec, identity=identity),
            evaluations=tuple(replace(one, accuracy=accuracy) for one in made.evaluations),
            converged_accuracy=accuracy,
        )
        told.append(record(url, planned.policy or published(url, made), made))
        return planned

    plans = [make() for _ in range(3)]
    assert [plan.switch_percent for plan in plans] == [100.0] * 3
    first, second = versions(url)
    assert (first.threshold, first.switch_percent) == (0.0, 100.0)
    assert second.threshold == measured_threshold([-2.0, -2.2, -1.9])
    assert second.band is not None
    assert second.band.threshold == second.threshold
    assert [len(words) for words in told] == [0, 0, 1]
    assert f"up to {second.threshold:g} km worse is accepted" in told[2][0]
    later = make()
    assert later.policy == second
    assert later.switch_percent < 100
    assert later.band is not None
    assert later.band.threshold == second.threshold


def test_two_runners_at_once_do_not_hinder_each_other(url: str) -> None:
    open_database(url, create=True).close()
    for _ in range(3):
        at_once(make_run, [url] * 2)
    found = versions(url)
    assert [one.version for one in found] == list(range(1, len(found) + 1))
    with open_database(url, create=False) as database:
        assert sum(uses_of(database, one).uses for one in found) == 6
