"""The protocols of the next run, by what the runs of a job took in each second phase."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest

from syncswitch.searcher.learning.job import JobHistory
from syncswitch.searcher.learning.pairs import ExpectedPair, best_pair, next_pair, pace_in
from syncswitch.searcher.learning.publishing import first_policy
from syncswitch.searcher.learning.reading import unused_job, used_job
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.job import Protocols, ScheduledJob, protocol_text
from syncswitch.storage.records.policy import whole_use
from syncswitch.storage.records.trial import PhaseRecord
from syncswitch.storage.uses.store import record_use, uses, uses_of
from syncswitch.trainers.run.fallback import Switch
from tests.storage.conftest import IDENTITY, RECORD

ASP = Protocols("bsp", "asp", "own")
QSR = Protocols("bsp", "qsr:8:0.1:semi-sync", "semi-sync")
PAIRS = (ASP, QSR)
W, FIRST_SECONDS = IDENTITY.total_worker_steps, 0.01


def job_with(protocols: Protocols) -> ScheduledJob:
    return replace(IDENTITY, protocols=protocols)


def add_run(
    database: Database,
    protocols: Protocols,
    held: float = 6.25,
    failed: tuple[tuple[float, Protocols], ...] = (),
    timed: Mapping[Protocols, float] | None = None,
    pace: float = 0.5,
) -> None:
    """A run whose second phase takes this pace, relative to BSP; what it `timed` likewise."""
    switch = round(W * held / 100)
    phases = [PhaseRecord("bsp", 0, switch, switch * FIRST_SECONDS, 0.0, 0)]
    if held < 100:
        seconds = (W - switch) * pace * FIRST_SECONDS
        phases.append(PhaseRecord(protocols.second_protocol, switch, W, seconds, 1.0, 3))
    times = {one.second_protocol: own * FIRST_SECONDS for one, own in (timed or {}).items()}
    identity = job_with(protocols)
    made = replace(
        RECORD,
        spec=replace(RECORD.spec, identity=identity, switch_percent=6.25, replicate=0),
        phases=tuple(phases),
        converged_accuracy=0.9,
        stopped_early=False,
        inherited_seconds=0.0,
        step_seconds={"bsp": FIRST_SECONDS, **times} if times else {},
        guard=GuardOutcome(
            held,
            tuple(
                FailedSwitch(percent, "low", 700, 6.0, 3.0, 0.5, one.second_protocol)
                for percent, one in failed
            ),
        ),
    )
    policy = PolicyRegistry(database).current(identity.fingerprint, protocols)
    policy = policy or first_policy(database, identity, "digits", made)
    assert policy is not None
    use = whole_use(policy, uuid.uuid4().hex, made)
    assert use is not None
    assert record_use(database, use)


def job_of(database: Database, protocols: Protocols) -> JobHistory:
    policy = PolicyRegistry(database).current(IDENTITY.fingerprint, protocols)
    if policy is None:
        return unused_job(database, job_with(protocols), None, None)
    return used_job(database, policy)


def tried(job: JobHistory) -> list[tuple[float, bool]]:
    return [(one.switch_percent, one.alarmed) for one in job.observations]


def test_a_failure_counts_for_the_pair_that_failed(url: str) -> None:
    with open_database(url, create=True) as database:
        add_run(database, QSR, failed=((6.25, ASP),), timed={ASP: 0.4})
        asp, qsr = job_of(database, ASP), job_of(database, QSR)
        assert tried(asp) == [(6.25, True)]
        assert tried(qsr) == [(6.25, False)]
        (lesson,) = asp.observations
        assert lesson.cost is not None
        assert lesson.cost.second_seconds == pytest.approx(0.4 * W * FIRST_SECONDS)
        policy = PolicyRegistry(database).current(IDENTITY.fingerprint, QSR)
        assert policy is not None
        summary = uses_of(database, policy)
        assert (summary.uses, summary.alarms) == (1, 0)
        # Where BSP did the rest, it is a lesson of that for both.
        add_run(database, ASP, 100.0, failed=((6.25, ASP), (6.25, QSR), (25.0, ASP)))
        asp, qsr = job_of(database, ASP), job_of(database, QSR)
    assert tried(asp) == [(6.25, True), (6.25, True), (25.0, True), (100.0, False)]
    assert tried(qsr) == [(6.25, False), (6.25, True), (100.0, False)]


def test_the_pace_is_that_of_the_newest_run_that_tells_it(url: str) -> None:
    with open_database(url, create=True) as database:
        add_run(database, ASP, pace=0.6, timed={ASP: 0.55, QSR: 0.7})
        runs = uses(database, IDENTITY.fingerprint)
        # Of a whole phase as it was; of a short one as it was timed.
        assert pace_in(runs, "asp") == pytest.approx(0.6)
        assert pace_in(runs, QSR.second_protocol) == pytest.approx(0.7)
        assert pace_in(runs, "ssp:3") is None
        add_run(database, QSR, pace=0.3)
        runs = uses(database, IDENTITY.fingerprint)
    assert pace_in(runs, "asp") == pytest.approx(0.6)
    assert pace_in(runs, QSR.second_protocol) == pytest.approx(0.3)


def test_a_pair_is_left_for_one_that_is_clearly_faster() -> None:
    own, other = (ExpectedPair(Switch(one, 6.25), 0.5) for one in PAIRS)
    for share, best in ((0.46, own), (0.44, replace(other, share=0.44))):
        assert best_pair(own, [replace(other, share=share)]) == best
    assert best_pair(own, []) == own


def test_the_next_run_takes_the_pair_that_is_expected_to_take_the_least_time(url: str) -> None:
    with open_database(url, create=True) as database:

        def following(protocols: Protocols) -> tuple[Protocols, str | None]:
            return next_pair(database, job_with(protocols), PAIRS, 1)

        assert following(ASP) == (ASP, None)  # nothing is known
        add_run(database, ASP, pace=0.5, timed={QSR: 0.46})
        assert following(ASP) == (ASP, None)  # not clearly faster
        add_run(database, ASP, 25.0, failed=((6.25, ASP),), pace=0.5, timed={QSR: 0.46})
        assert next_pair(database, job_with(ASP), (ASP,), 1) == (ASP, None)
        assert following(ASP) == (
            QSR,
            "by what its runs took, this job is expected to take 0.63 of the time of BSP alone with"
            f" {protocol_text(QSR.second_protocol)}, and 0.75 with ASP",
        )
        assert following(QSR) == (QSR, None)
        add_run(database, QSR, pace=0.95)
        assert following(QSR)[0] == ASP  # it has become slow


def test_a_run_that_is_to_measure_bsp_alone_is_one_of_its_own_pair(url: str) -> None:
    with open_database(url, create=True) as database:
        add_run(database, ASP, pace=0.5, timed={QSR: 0.2})
        for runs, pair in ((3, QSR), (1000, ASP)):
            assert job_of(database, ASP).next_percent(runs) == (100.0 if pair == ASP else 6.25)
            assert next_pair(database, job_with(ASP), PAIRS, runs)[0] == pair
