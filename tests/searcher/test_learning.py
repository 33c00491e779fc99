"""Learning from later runs: lessons of runs, the next one, and what becomes of a policy."""

from __future__ import annotations

import json
import statistics
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Engine, event

from syncswitch.cli.search.main import main
from syncswitch.cli.words import OPTION_WORDS
from syncswitch.searcher.learning.first_runs import first_runs
from syncswitch.searcher.learning.job import JobHistory, Revision
from syncswitch.searcher.learning.lessons import lessons_of
from syncswitch.searcher.learning.next_run import NextRun, next_run
from syncswitch.searcher.learning.publishing import after_use, first_policy, revise
from syncswitch.searcher.learning.reading import (
    as_known_now,
    band,
    policy_explained,
    simulated_policy,
    used_job,
)
from syncswitch.searcher.report.data import load_report
from syncswitch.searcher.search.plan import steps_of
from syncswitch.searcher.search.policy_words import promise_sentences, uses_sentence, uses_text
from syncswitch.searcher.strategies.adaptive.strategy import (
    AdaptiveStrategy,
    Assessment,
    counted_runs,
)
from syncswitch.searcher.strategies.base import Decided, Decision, NextTrial
from syncswitch.searcher.strategies.baseline import measured_threshold
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.training.uses import RunRecorder
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import FatalError
from syncswitch.storage.policies import unmeasured
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.unmeasured import unmeasured_policy, unmeasured_text
from syncswitch.storage.queries.policies import use_facts
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.guard import (
    Band,
    BandPoint,
    BelievedBand,
    FailedSwitch,
    GuardOutcome,
)
from syncswitch.storage.records.job import OWN_MOMENTUM, OWN_OPTIMIZER, ScheduledJob
from syncswitch.storage.records.metric import DescribedMetric, Metric
from syncswitch.storage.records.policy import Measured, Promise, TimingPolicy, whole_use
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialRecord
from syncswitch.storage.uses.store import record_use, uses, uses_of
from syncswitch.storage.uses.summary import UseSummary
from tests.failing import fails
from tests.records import changed
from tests.searcher.policies import published
from tests.storage.conftest import IDENTITY, POLICY, RECORD, sent_back, use_of
from tests.warm_program import at_once
from tests.wording import Said

COST = TrialCost(1.0, 1.0, 0.4)
TARGET = 0.9
SECOND = 0.4
STRATEGY = AdaptiveStrategy(halvings=4, threshold=0.01, share_prefix=False, early_stop=False)
USES = 40


def use(percent: float, number: int, *, fails: bool = False) -> list[Observation]:
    """What a guarded run shows; its accuracy swings by two thousandths."""
    share = percent / 100
    trained = Observation(
        percent,
        TARGET + 0.002 * (-1) ** number,
        cost=TrialCost(
            share + (1 - share) * SECOND + fails * (1 - share),
            1.0 if share else None,
            SECOND if share < 1 else None,
        ),
        alarmed=fails,
    )
    return lessons_of(trained, number, seed=number)


def next_use(runs: list[Observation], runs_left: int) -> Decision:
    return Assessment(STRATEGY, runs, runs_left).decision()


def test_each_switch_that_failed_is_a_lesson_and_that_which_held() -> None:
    lessons = lessons_of(Observation(25.0, 0.9, cost=COST), 3, 7, [(6.25, None), (12.5, None)])
    told = [(one.switch_percent, one.alarmed) for one in lessons]
    assert told == [(6.25, True), (12.5, True), (25.0, False)]
    assert [one.cost for one in lessons] == [COST, None, None]
    assert len(counted_runs(lessons, (6.25, 12.5, 25.0, 100.0))) == 3
    alone = lessons_of(Observation(100.0, 0.9, cost=COST), 3, 7, [(25.0, None)])
    assert alone == lessons_of(Observation(25.0, 0.9, cost=COST, alarmed=True), 3, 7)


def test_a_failed_switch_that_trained_to_its_end_counts_with_its_accuracy() -> None:
    failed, held = lessons_of(Observation(25.0, 0.9, cost=COST), 3, 7, [(12.5, 0.87)])
    assert failed == replace(held, switch_percent=12.5, accuracy=0.87, cost=COST)
    assert (failed.alarmed, held.accuracy, held.cost) == (False, 0.9, None)


def test_uses_with_one_seed_count_each_but_the_first_protocol_alone_once() -> None:
    """And none takes the place of a trial of a search."""
    runs = [
        *(Observation(percent, 0.9, replicate=0) for percent in (25.0, 100.0)),
        *lessons_of(Observation(25.0, 0.9), 0, seed=7),
        *lessons_of(Observation(25.0, 0.91), 1, seed=7),
        *lessons_of(Observation(100.0, 0.9), 2, seed=7),
        *lessons_of(Observation(25.0, 0.9, alarmed=True), 3, seed=7),
    ]
    counted = [run.switch_percent for run in counted_runs(runs, (25.0, 100.0))]
    assert (counted.count(25.0), counted.count(100.0)) == (4, 2)


@pytest.mark.parametrize("good_from_percent", [12.5, 25.0, 50.0, 100.0])
def test_it_begins_with_the_first_protocol_alone_and_finds_the_earliest_good_switch(
    good_from_percent: float,
) -> None:
    runs: list[Observation] = []
    percents: list[float] = []
    while isinstance(decision := next_use(runs, USES - len(percents)), NextTrial):
        percent = decision.switch_percent
        runs += use(percent, len(percents), fails=percent < good_from_percent)
        percents.append(percent)
        # Exploring is what a few of many uses are for.
        assert len(percents) <= 12
    assert isinstance(decision, Decided)
    assert decision.switch_percent == good_from_percent
    assert decision.target_accuracy == pytest.approx(0.9, abs=0.003)
    assert percents[0] == 100.0
    assert next_use([Observation(100.0, 0.1, diverged=True)], 10) == NextTrial(100.0)


def test_many_uses_try_an_earlier_switch() -> None:
    runs = [one for number in range(8) for one in use((100.0, 25.0)[number > 1], number)]
    exploring = next_use(runs, 1000)
    assert isinstance(exploring, NextTrial)
    assert exploring.switch_percent < 25.0


def test_the_uses_of_a_policy_in_a_few_words(said: Said) -> None:
    for many, kept, alarms, speed_up in (
        (0, 0, 0, None),
        (41, 39, 0, 1.43),
        (41, 39, 2, None),
        (1, 0, 1, None),
        (1234, 1200, 0, None),
    ):
        summary = UseSummary(many, kept, alarms, 0, None, speed_up, None)
        said(uses_text(summary), uses_sentence(summary))


W = IDENTITY.total_worker_steps
GOOD_FROM_PERCENT = 25.0


def planned_run(url: str, expected_runs: int = 30, identity: ScheduledJob = IDENTITY) -> NextRun:
    with open_database(url, create=True) as database:
        return next_run(database, identity, expected_runs)


def first_of(url: str, made: TrialRecord, begins_from: TimingPolicy | None = None) -> TimingPolicy:
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


def record(url: str, policy: TimingPolicy, made: TrialRecord, expected_runs: int = 30) -> list[str]:
    """Records the use of a policy; gives what is said after it."""
    use = whole_use(policy, uuid.uuid4().hex, made)
    assert use is not None
    with open_database(url, create=False) as database:
        assert record_use(database, use)
        return after_use(database, policy, expected_runs)


def make_run(url: str, expected_runs: int = 30) -> NextRun:
    """As syncswitch-run --learn does it."""
    planned = planned_run(url, expected_runs)
    with open_database(url, create=False) as database:
        made = trained(planned, len(uses(database, IDENTITY.fingerprint)))
    record(url, planned.policy or first_of(url, made), made, expected_runs)
    return planned


def versions(url: str) -> list[TimingPolicy]:
    with open_database(url, create=False) as database:
        return PolicyRegistry(database).policies()[::-1]


def test_from_nothing_to_a_policy(url: str) -> None:
    plans = [make_run(url)]
    assert (plans[0].policy, plans[0].switch_percent, plans[0].learns) == (None, 100.0, True)
    assert plans[0].band == Band(None, 0.01)
    (first,) = versions(url)
    assert (first.switch_percent, first.target_accuracy) == (100.0, 0.902)
    assert first.promise.reason == "no run has tried a switch yet"
    while len(versions(url)) == 1:
        plans.append(make_run(url))
        assert len(plans) < 15
    # All later ones are guarded, by all runs of the first protocol that there are.
    assert all(plan.band is not None and plan.band.curve for plan in plans[1:])
    answer = versions(url)[-1]
    assert (answer.switch_percent, answer.version) == (GOOD_FROM_PERCENT, 2)
    assert answer.promise.confidence is not None
    assert answer.promise.confidence >= 0.7
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


@pytest.mark.parametrize(
    ("percent", "end", "shown", "then"),
    [
        (100.0, 300, "BSP alone", "uses BSP alone"),
        # Before its switch, and after it, without a guard.
        (50.0, 300, "BSP alone", "uses BSP alone"),
        (50.0, 700, "a switch at 50 %", "uses BSP alone"),
    ],
)
def test_a_first_run_that_diverged_teaches_what_diverged(
    url: str, percent: float, end: int, shown: str, then: str
) -> None:
    made = diverged(percent, end, 0)
    policy = first_of(url, made)
    assert (policy.switch_percent, policy.target_accuracy) == (100, None)
    assert record(url, policy, made) == [
        f"this run is recorded as one that diverged with {shown}; the next one {then}"
    ]
    assert planned_run(url).policy == policy
    (said,) = record(url, policy, diverged(percent, end, 1))
    is_hopeless = shown == "BSP alone"
    assert ("2 of 2 runs without a switch diverged" in str(said)) is is_hopeless


def diverged(percent: float, end: int, seed: int) -> TrialRecord:
    whole, switch = ended(percent, 0.1, seed), round(W * percent / 100)
    phases = [PhaseRecord("bsp", 0, min(switch, end), 3.0, 0.0, 0)]
    if end > switch:
        phases.append(PhaseRecord("asp", switch, end, 1.0, 1.0, 3))
    return replace(
        whole, worker_steps=end, evaluations=(), phases=tuple(phases), diverged=True, guard=None
    )


def test_a_version_that_a_learning_database_never_had_is_refused(url: str) -> None:
    made = ended(100.0, 0.9, 0)
    late = whole_use(replace(first_of(url, made), version=99), "a", made)
    assert late is not None
    with (
        open_database(url, create=False) as database,
        pytest.raises(FatalError, match="version is 99; allowed: from 1 to 1"),
    ):
        record_use(database, late)


def test_a_first_run_that_cannot_be_publishes_nothing(url: str) -> None:
    made = replace(ended(100.0, 0.9, 0), training_seconds=1e308)
    with open_database(url, create=True) as database:
        with pytest.raises(FatalError, match="training_seconds is 1e"):
            first_policy(database, IDENTITY, "digits", made)
        assert not PolicyRegistry(database).policies()
        early = replace(made, training_seconds=3.0, stopped_early=True)
        assert first_policy(database, IDENTITY, "digits", early) is None


def test_learning_goes_on_after_a_search(url: str) -> None:
    found = published(url, guarded=True)
    planned = planned_run(url, 1000)
    assert planned.policy == found
    assert planned.switch_percent != found.switch_percent
    assert planned_run(url, 1).policy == found


@pytest.mark.parametrize("held_percent", [12.5, 50.0, 100.0])
def test_the_first_real_run_confirms_or_corrects_what_simulated_ones_found(
    url: str, held_percent: float
) -> None:
    simulated = changed(IDENTITY, simulated_cluster="9" * 64)
    published(url, simulated, guarded=True, switch_percent=12.5)
    planned = planned_run(url)
    assert (planned.policy, planned.switch_percent) == (None, 12.5)
    assert planned.begins_from is not None
    assert planned.band is not None
    failed = sent_back(12.5)
    guard = GuardOutcome(held_percent, () if held_percent == 12.5 else failed.failed)
    made = replace(trained(planned), guard=guard)
    record(url, first_of(url, made, planned.begins_from), made)
    first = next(one for one in versions(url) if one.job.fingerprint == IDENTITY.fingerprint)
    assert first.switch_percent == held_percent
    assert first.target_accuracy == POLICY.target_accuracy
    assert first.evidence == ()
    with open_database(url, create=False) as database:
        seen = used_job(database, first).observations
        # What a switch keeps, and what it costs, the real run alone says.
        assert [(run.switch_percent, run.alarmed) for run in seen] == (
            [(12.5, False)] if held_percent == 12.5 else [(12.5, True), (held_percent, False)]
        )
        other = changed(IDENTITY, simulated_cluster="8" * 64)
        assert simulated_policy(database, other) is None


KILOMETRES = changed(
    IDENTITY, metric="mae", metric_goal="min", metric_highest=None, metric_unit="km"
)


def run_in_kilometres(
    url: str, identity: ScheduledJob, uses: int, kilometres: float, held: float | None = None
) -> tuple[NextRun, list[str]]:
    """One run, which ends as BSP alone if nothing else is said, and what is said after it."""
    planned = planned_run(url, uses, identity)
    made = trained(planned, round(100 * kilometres))
    percent = planned.switch_percent
    failed = () if held in (None, percent) else sent_back(percent).failed
    failed = tuple(replace(one, accuracy=-kilometres - 1) for one in failed)
    made = replace(
        made,
        spec=replace(made.spec, identity=identity),
        evaluations=tuple(replace(one, accuracy=-kilometres) for one in made.evaluations),
        converged_accuracy=-kilometres,
        guard=GuardOutcome(percent if held is None else held, failed),
    )
    return planned, record(url, planned.policy or first_of(url, made), made, uses)


def test_many_runs_of_a_job_without_a_usual_threshold_measure_it_first(url: str) -> None:
    made = [run_in_kilometres(url, KILOMETRES, 30, value) for value in (2.0, 2.2, 1.9)]
    assert [plan.switch_percent for plan, _ in made] == [100.0] * 3
    first, second = versions(url)
    assert (first.threshold, first.switch_percent, first.target_accuracy) == (0.0, 100.0, None)
    assert second.threshold == measured_threshold([-2.0, -2.2, -1.9])
    assert second.target_accuracy == pytest.approx(-6.1 / 3)
    assert second.band is not None
    assert second.band.threshold == second.threshold
    assert [len(words) for _, words in made] == [0, 0, 2]
    threshold, target = made[2][1]
    assert f"up to {second.threshold:g} km worse is accepted" in threshold
    assert "BSP alone reached a mae of 2.0333 km; it is in version 2" in target
    later, _ = run_in_kilometres(url, KILOMETRES, 30, 2.1)
    assert later.policy == second
    assert later.switch_percent < 100
    assert later.band is not None
    assert later.band.threshold == second.threshold


def test_few_runs_of_a_job_without_a_usual_threshold_take_the_gain_at_once(url: str) -> None:
    own = changed(KILOMETRES, momentum_after_switch=OWN_MOMENTUM)
    # The second fails at its switch and ends as BSP alone, which is one run of three.
    made = [run_in_kilometres(url, own, 3, 2.0, held) for held in (None, 100.0, None)]
    assert [plan.switch_percent for plan, _ in made] == [12.5, 12.5, 50.0]
    # Nothing is measured that a run could be held against.
    assert [plan.band for plan, _ in made] == [Band(None, 0.0)] * 3
    for plan, _ in made:
        assert plan.expected is not None
        assert plan.expected.target_accuracy is None
    policy = versions(url)[0]
    assert (policy.switch_percent, policy.target_accuracy, policy.threshold) == (12.5, None, 0.0)
    said = promise_sentences(policy)
    assert "a model no worse than BSP's own models are by chance (how much that is, is not" in said
    with open_database(url, create=False) as database:
        assert uses_of(database, policy).kept is None
        for entry in PolicyRegistry(database).entries():
            assert policy_explained(database, entry).answer is None


def test_a_job_without_a_usual_threshold_that_ends_as_bsp_alone_at_first_measures_no_target(
    url: str,
) -> None:
    own = changed(KILOMETRES, momentum_after_switch=OWN_MOMENTUM)
    run_in_kilometres(url, own, 3, 2.0, 100.0)
    (policy,) = versions(url)
    assert (policy.switch_percent, policy.target_accuracy) == (100.0, None)
    assert policy.band == Band(None, 0.0)


def test_two_runners_at_once_do_not_hinder_each_other(url: str) -> None:
    open_database(url, create=True).close()
    for _ in range(3):
        at_once(make_run, [url] * 2)
    found = versions(url)
    assert [one.version for one in found] == list(range(1, len(found) + 1))
    with open_database(url, create=False) as database:
        assert sum(uses_of(database, one).uses for one in found) == 6


BAND = Band(0.9, 0.01, 2, (BandPoint(500, 0.8, 0.0), BandPoint(1000, 0.9, 0.0)))


@pytest.fixture
def policy(url: str) -> TimingPolicy:
    return published(url, band=BAND)


@pytest.fixture
def database(url: str, policy: TimingPolicy) -> Iterator[Database]:
    """With this policy."""
    with open_database(url, create=False) as opened:
        yield opened


def record_uses(
    database: Database,
    policy: TimingPolicy,
    kept: Iterable[bool],
    outcome: Callable[[float], GuardOutcome] = sent_back,
    identity: ScheduledJob = IDENTITY,
) -> None:
    """Those that do not keep the accuracy are sent back, and then end with that of BSP."""
    for number, is_kept in enumerate(kept):
        percent = policy.switch_percent
        use = use_of(
            policy,
            number,
            spec=replace(RECORD.spec, identity=identity),
            converged_accuracy=0.9 + 0.002 * (-1) ** number,
            guard=GuardOutcome(percent) if is_kept else outcome(percent),
        )
        assert record_use(database, replace(use, use_id=f"{policy.study}-{number}"))


def test_a_policy_that_fails_again_and_again_gets_a_later_switch(
    database: Database, policy: TimingPolicy
) -> None:
    registry = PolicyRegistry(database)
    registry.set_alias(policy.job.fingerprint, "pinned", 1)
    record_uses(database, policy, [False, False])
    revised = revise(database, policy)
    assert revised is not None
    found, new = revised
    assert (new.version, new.switch_percent) == (2, found.answer.switch_percent)
    assert new.switch_percent > 12.5
    assert new.promise.reason == found.why
    failed = "2 of 2 switches failed with version 1, and training without a switch is"
    assert found.why.startswith(failed)
    assert new.evidence == policy.evidence
    assert new.band is not None
    assert new.band.curve == BAND.curve
    assert registry.aliases(policy.job.fingerprint) == {"current": 2, "pinned": 1}
    # It was revised, and its successor has not been used yet.
    assert revise(database, policy) is None
    assert revise(database, new) is None


def test_a_revision_says_what_is_better_about_its_switch(said: Said) -> None:
    for here, there, times, shares, reason in (
        (25.0, 12.5, (0.6, 0.5), (0.9, 0.9), None),
        (25.0, 50.0, (0.5, 0.7), (0.8, 0.9), None),
        (25.0, 100.0, (0.5, 1.0), (0.8, 0.9), "an earlier switch saves no time"),
        (25.0, 12.5, (0.5, 0.6), (0.9, 0.8), None),
        (100.0, 100.0, (1.0, 1.0), (0.9, 0.9), "an earlier switch saves no time"),
        (25.0, 50.0, (None, 0.7), (None, 0.9), None),
    ):
        promise = Promise(delivered_share=shares[1], expected_time=times[1], reason=reason)
        answer = Decided(there, 0.9, promise)
        found = Revision(1, "bsp", here, 3, 0, times[0], shares[0], answer)
        said(found.why, replace(found, failed=2).why)


def test_a_switch_that_failed_at_the_end_of_a_use_counts_with_its_accuracy(
    database: Database, policy: TimingPolicy
) -> None:
    def at_the_end(percent: float) -> GuardOutcome:
        (failed,) = sent_back(percent).failed
        return GuardOutcome(100.0, (replace(failed, worker_step=1000, accuracy=0.87),))

    record_uses(database, policy, [False], at_the_end)
    lessons = used_job(database, policy).observations[len(policy.evidence) :]
    (early,) = (lesson for lesson in lessons if lesson.switch_percent < 100)
    assert (early.switch_percent, early.accuracy, early.alarmed) == (12.5, 0.87, False)


def test_whoever_moved_current_meanwhile_is_obeyed(
    database: Database, policy: TimingPolicy
) -> None:
    registry = PolicyRegistry(database)
    record_uses(database, policy, [False, False, False])
    job = used_job(database, policy)
    found = job.revision()
    assert found is not None
    other = registry.publish(replace(POLICY, study="another search", switch_percent=50.0))
    with fails("policy-moved"):
        registry.publish(job.draft(found), replaces=policy.version)
    assert revise(database, policy) is None
    assert registry.aliases(policy.job.fingerprint) == {"current": other.version}


def test_runners_at_the_same_moment_publish_one_version(
    database: Database, policy: TimingPolicy
) -> None:
    record_uses(database, policy, [False, False, True, False])
    url = database.url
    database.close()
    said = at_once(_revise, [(url, policy)] * 3)
    with open_database(url, create=False) as again:
        versions = PolicyRegistry(again).policies()
    assert [one.version for one in versions] == [2, 1]
    # One that came late finds that the version is not current any more.
    sentences = {word for words in said for word in words}
    assert len(sentences) == 1
    assert "from now on version 2" in sentences.pop()


def _revise(given: tuple[str, TimingPolicy]) -> list[str]:
    url, policy = given
    with open_database(url, create=False) as database:
        return after_use(database, policy, 4)


def test_what_is_proposed_after_a_use_can_be_done(database: Database, policy: TimingPolicy) -> None:
    def revised(words: str) -> Result:
        return CliRunner().invoke(main, [*words.split(), "--storage", database.url])

    stays = revised("policy revise digits")
    assert (stays.exit_code, stays.output) == (0, "digits: version 1 stays. Not used yet.\n")
    simulated = changed(IDENTITY, simulated_cluster="5" * 64)
    other = published(database.url, simulated, band=BAND)
    for one, identity in ((policy, IDENTITY), (other, simulated)):
        record_uses(database, one, [True, False, False, False], identity=identity)
        (proposal,) = after_use(database, one)
        why, command = OPTION_WORDS.say(proposal).split("; publish it with: syncswitch-search ")
        assert why.startswith(
            "3 of 4 switches failed with version 1, and training without a switch is"
        )
        done = json.loads(revised(f"{command} --json").stdout)
        assert (done["revision"]["failed"], done["policy"]["version"]) == (3, 2)
        assert done["policy"]["fingerprint"] == identity.fingerprint
    assert after_use(database, replace(policy, study="of another database"), 4) == []


def test_a_job_that_has_changed_is_said(database: Database, policy: TimingPolicy) -> None:
    record_uses(database, policy, [True] * 20 + [False] * 8)
    words = after_use(database, policy)
    drift = (
        "of the last 10 runs 2 kept the accuracy, of the 19 before them 19: the job has changed,"
        " search again"
    )
    assert words[0] == drift
    assert str(words[1]).startswith("8 of 28 switches failed with version 1, and training without")
    shown = CliRunner().invoke(main, ["policy", "show", "digits", "--storage", database.url])
    assert f"; the guard went back 8 times; {drift}." in " ".join(shown.output.split())


def test_a_file_is_held_against_what_its_runs_make_believe(database: Database) -> None:
    """As a policy of the database is: where runs with a switch tell of the target, too."""
    identity = changed(IDENTITY, momentum_after_switch=OWN_MOMENTUM)
    known = published(database.url, identity, band=BAND)
    believed = band(database, known)
    assert isinstance(believed, BelievedBand)
    of_file = replace(known, study="of another database")
    assert band(database, of_file) == believed
    for recorder in (RunRecorder(database.url, print), RunRecorder("sqlite:///missing.db", print)):
        assert recorder.band(of_file) == believed
        shared = changed(of_file, momentum_after_switch="same")
        assert recorder.band(shared) == BelievedBand(0.9, 0.01, 2, BAND.curve, 0.01)


def test_what_the_first_protocol_alone_reaches_is_known_with_every_second_one(
    database: Database, policy: TimingPolicy
) -> None:
    other = changed(IDENTITY, second_protocol="ssp:3")
    planned = next_run(database, other, expected_runs=3)
    assert (planned.policy, planned.known_from) == (None, policy)
    assert planned.expected is None
    assert planned.band == policy.stated_band
    assert next_run(database, changed(IDENTITY, workers=5), 3).known_from is None
    assert next_run(database, changed(other, first_protocol="ssp:2"), 3).known_from is None

    spec = replace(RECORD.spec, identity=other)
    phases = (PhaseRecord("bsp", 0, 500, 2.0, 0.0, 0), PhaseRecord("ssp:3", 500, 1000, 1.0, 2.5, 7))
    record = replace(RECORD, spec=spec, phases=phases, stopped_early=False)
    first = first_policy(database, other, "digits", record)
    assert first is not None
    alone = [run for run in policy.evidence if run.switch_percent == 100]
    assert (first.version, list(first.evidence)) == (policy.version + 1, alone)
    assert (first.target_accuracy, first.threshold) == (policy.target_accuracy, policy.threshold)
    assert first.protocols == other.protocols


def test_a_policy_without_a_target_gets_that_of_another_second_protocol(
    database: Database, policy: TimingPolicy
) -> None:
    other = changed(IDENTITY, second_protocol="ssp:3")
    blind = replace(
        unmeasured_policy(other), study="learning-ssp", software={}, measured=Measured(0.89, 3.0)
    )
    blind = PolicyRegistry(database).publish(blind)
    job = used_job(database, blind)
    assert job.goal is not None
    assert (job.goal.accuracy, job.policy.version) == (policy.target_accuracy, blind.version)
    planned = next_run(database, other, expected_runs=3)
    assert planned.band is not None
    assert planned.band.target_accuracy is not None
    assert as_known_now(database, blind).target_accuracy is None  # it has no use yet


def test_other_jobs_are_read_only_where_what_they_show_is_needed(
    database: Database, policy: TimingPolicy
) -> None:
    others = [published(database.url, changed(IDENTITY, workers=n)).job.fingerprint for n in (2, 8)]
    known = [policy.job.fingerprint, *others]
    asked: list[str] = []

    def note(_: object, __: object, ___: object, values: object, *____: object) -> None:
        asked.extend(one for one in known if one in str(values))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert band(database, policy) is not None
        assert after_use(database, policy) == []
        assert set(asked) == {policy.job.fingerprint}
        next_run(database, IDENTITY, 30)
        assert set(asked) == set(known)
        # And once, however often the job is copied meanwhile.
        assert used_job(database, policy).revision(30) is None
        counts = [asked.count(one) for one in others]
        next_run(database, IDENTITY, 30)
        assert [asked.count(one) for one in others] == [count + 1 for count in counts]
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_a_target_that_was_measured_too_high_is_found_out(
    database: Database, policy: TimingPolicy
) -> None:
    record_uses(database, policy, [False, True, False])
    found, job = band(database, policy), used_job(database, policy)
    assert found is not None
    # The run of the search, and those that the guard sent back.
    assert found.target_accuracy == pytest.approx((0.9 + 0.902 + 0.902) / 3)
    assert (found.runs, found.curve) == (2, BAND.curve)
    given = replace(policy, band=replace(BAND, runs=0, curve=()), evidence=policy.evidence[:1])
    assert JobHistory(given, job.uses).band({}) == given.band
    given = replace(given, evidence=())
    unmeasured = replace(given, band=Band(None, BAND.threshold), target_accuracy=None)
    measured = JobHistory(unmeasured, job.uses).band({})
    assert measured is not None
    assert (measured.target_accuracy, measured.runs) == (0.902, 0)
    assert JobHistory(unmeasured, ()).band({}) == unmeasured.band
    assert job.kept == [False, True, False]


OWN = changed(IDENTITY, momentum_after_switch="own")


def own_run(url: str, expected_runs: int, accuracy: float = 0.9) -> tuple[NextRun, list[str]]:
    """One run of a job whose workers keep their own momentum; nothing goes wrong in it."""
    planned = planned_run(url, expected_runs, OWN)
    with open_database(url, create=False) as database:
        number = len(uses(database, OWN.fingerprint))
    made = trained(planned, number)
    made = replace(
        made,
        spec=replace(made.spec, identity=OWN),
        converged_accuracy=accuracy,
        guard=GuardOutcome(planned.switch_percent),
    )
    return planned, record(url, planned.policy or first_of(url, made), made, expected_runs)


def test_the_first_training_takes_the_gain_and_claims_no_target(url: str) -> None:
    plans = [own_run(url, 3) for _ in range(4)]
    assert [plan.switch_percent for plan, _ in plans] == [6.25] * 4
    assert [words for _, words in plans] == [[]] * 4
    for plan, _ in plans:
        assert plan.band == Band(None, 0.01)
        assert plan.expected is not None
        assert plan.expected.target_accuracy is None
        assert plan.expected.promise.kept_share is not None
    (first,) = versions(url)
    assert (first.switch_percent, first.target_accuracy) == (6.25, None)
    assert (first.band, first.promise.reason) == (Band(None, 0.01), None)
    assert (first.measured.mean_accuracy, first.measured.baseline_seconds) == (0.9, None)
    with open_database(url, create=False) as database:
        assert uses_of(database, first).kept is None
        assert [one.result.kept for one in use_facts(database)] == [None] * 4


def test_many_trainings_buy_a_run_of_the_first_protocol_alone_and_then_all_are_judged(
    url: str,
) -> None:
    own_run(url, 1)
    bought, words = own_run(url, 40, 0.902)
    assert bought.switch_percent == 100.0
    assert words == [
        "the target is measured: BSP alone reached an accuracy of 0.9020; it is in version 2, and"
        " later runs are compared with it"
    ]
    first, second = versions(url)
    assert (first.target_accuracy, second.target_accuracy) == (None, 0.902)
    assert second.switch_percent == 6.25
    assert second.measured.baseline_seconds == RECORD.training_seconds
    assert second.band is not None
    assert (second.band.target_accuracy, second.band.runs) == (0.902, 1)
    with open_database(url, create=False) as database:
        assert uses_of(database, first).kept == 2
        assert [one.result.kept for one in use_facts(database)] == [True, True]


@pytest.mark.parametrize("failed", [sent_back(6.25).failed, ()], ids=["alarmed", "slower"])
def test_a_first_run_that_ends_in_the_first_protocol_alone_has_measured_the_target(
    url: str, failed: tuple[FailedSwitch, ...]
) -> None:
    """Also where it stayed there, as nothing else was faster."""
    planned = planned_run(url, 1, OWN)
    made = replace(trained(planned), guard=GuardOutcome(100.0, failed))
    made = replace(made, spec=replace(made.spec, identity=OWN))
    first = first_of(url, made)
    assert (first.switch_percent, first.target_accuracy) == (100.0, 0.902)
    assert first.band is not None
    assert (first.band.target_accuracy, first.band.runs) == (0.902, 1)


def test_what_first_runs_expect_is_what_the_searcher_decides_now() -> None:
    """`python -m syncswitch.searcher.learning.first_runs` writes the file."""
    file = Path(unmeasured.__file__).with_name("first_runs.json")
    assert json.loads(file.read_text()) == first_runs()


@pytest.mark.parametrize("momentum", [OWN_MOMENTUM, OWN_OPTIMIZER, "same", None])
@pytest.mark.parametrize("job", [IDENTITY, KILOMETRES])
def test_a_training_without_a_searcher_begins_where_the_searcher_would(
    url: str, momentum: str | None, job: ScheduledJob
) -> None:
    job = changed(job, momentum_after_switch=momentum)
    planned, stated = planned_run(url, 1, job), unmeasured_policy(job)
    assert planned.expected is not None
    assert stated.switch_percent == planned.switch_percent
    assert (stated.band, stated.target_accuracy) == (planned.band, None)
    for name, value in flat(planned.expected).items():
        if isinstance(value, float):
            assert flat(stated)[name] == pytest.approx(value, abs=0.001), name


@pytest.mark.parametrize(
    ("job", "momentum", "noticed"),
    [
        (IDENTITY, OWN_MOMENTUM, ""),
        (
            IDENTITY,
            OWN_OPTIMIZER,
            ", which with such an optimizer notice little but a run that diverges",
        ),
        (
            KILOMETRES,
            OWN_OPTIMIZER,
            ", which without a threshold notice little but a run that diverges",
        ),
    ],
)
def test_it_says_what_the_runs_own_evaluations_notice(
    job: ScheduledJob, momentum: str, noticed: str
) -> None:
    policy = unmeasured_policy(changed(job, momentum_after_switch=momentum))
    text = str(unmeasured_text(policy, "nothing"))
    assert (
        f"so it is guarded by its own evaluations{noticed}; a failed switch costs nothing." in text
    )


def test_switch_points_that_are_one_step_of_the_job_count_as_one(url: str) -> None:
    policy = changed(published(url), total_worker_steps=12, switch_percent=12.5)  # rounds of 4
    job = JobHistory(policy, ())
    step_of = steps_of(policy.job, "bsp")
    assert step_of(12.5) == step_of(25.0)
    grid = job.strategy().grid()
    assert len(set(map(step_of, grid))) == len(grid)
    early = job.observations[0]
    assert (early.switch_percent in grid, early.accuracy) == (True, 0.895)
    # A policy at a point that is no longer one of them stays comparable.
    assert job.expected(12.5) == job.expected(25.0)
    assert job.next_percent(0) == job.answer().switch_percent  # type: ignore[union-attr]


def collapsing_runs(url: str) -> list[list[str]]:
    """Three runs of a job in which five of six switches fail; the last seed collapses anyway.

    Gives what is said after each.
    """
    said = []
    for seed, (accuracy, held, failed) in enumerate(
        [(0.7294, 25.0, (12.5,)), (0.7281, 100.0, (50.0,)), (0.4915, 100.0, (1.5625, 25.0))]
    ):
        planned = planned_run(url)
        first = 10.0 * (held / 100)
        phases = [PhaseRecord("bsp", 0, round(W * held / 100), first, 0.0, 0)]
        if held < 100:
            phases.append(PhaseRecord("asp", phases[0].end_worker_step, W, 3.0, 1.0, 3))
        tries = tuple(
            FailedSwitch(percent, "too low", round(W * 0.7), 6.0, 3.0, 0.5) for percent in failed
        )
        made = replace(
            RECORD,
            spec=replace(RECORD.spec, switch_percent=failed[0], seed=seed, replicate=0),
            evaluations=tuple(Evaluation(step, step / 100, accuracy, 0.3) for step in (500, W)),
            phases=tuple(phases),
            converged_accuracy=accuracy,
            stopped_early=False,
            inherited_seconds=0.0,
            guard=GuardOutcome(held, tries),
        )
        said.append(record(url, planned.policy or first_of(url, made), made))
    return said


def test_a_run_of_the_first_protocol_that_collapsed_is_no_part_of_the_target(url: str) -> None:
    *_, (line,) = collapsing_runs(url)
    assert line == (
        "this run of BSP alone collapsed: it ended at 0.4915, far from the other runs of this job,"
        " and is no part of the target of 0.7281"
    )
    planned = planned_run(url)
    assert planned.band is not None
    assert planned.band.target_accuracy == pytest.approx(0.7281, abs=0.002)
    with open_database(url, create=False) as database:
        (current,) = PolicyRegistry(database).lookup(IDENTITY.fingerprint)
        known = as_known_now(database, current)
    assert known.target_accuracy == 0.7281
    # What five failures of six switches leave of the figures that the version was published with.
    for now, then in (
        (known.promise.confidence, current.promise.confidence),
        (known.promise.kept_share, current.promise.kept_share),
    ):
        assert now is not None
        assert then is not None
        assert now < then - 0.04
    page = CliRunner().invoke(main, ["policy", "show", "digits", "--storage", url]).stdout
    assert f"{known.promise.expected_time:.2f} of the time" in page
    assert f"{current.promise.expected_time:.2f} of the time" not in page
    assert "1 run of the first protocol alone collapsed, and is no part of the target" in page
    for words in ("show digits", "lookup digits", "list"):
        given = ["policy", *words.split(), "--storage", url]
        told = json.loads(CliRunner().invoke(main, [*given, "--json"]).stdout)
        one = told if isinstance(told, dict) else told[0]
        assert (one["expected_time"], one["target_accuracy"]) == (
            known.promise.expected_time,
            known.target_accuracy,
        )
        share = f"{100 * (known.promise.delivered_share or 0):.0f}"
        assert share in CliRunner().invoke(main, given).stdout


def ended(percent: float, accuracy: float, seed: int) -> TrialRecord:
    """A run whose switch held, or one of the first protocol alone, that ended so."""
    whole = trained(NextRun(None, percent), seed)
    curve = tuple(Evaluation(step, step / 100, accuracy, 0.3) for step in (500, W))
    return replace(whole, evaluations=curve, converged_accuracy=accuracy, guard=None)


def test_a_first_run_that_collapsed_is_no_target_once_others_show_it(url: str) -> None:
    first = ended(100.0, 0.4915, 0)
    policy = first_of(url, first)
    assert policy.target_accuracy == 0.4915
    assert record(url, policy, first) == []
    assert record(url, policy, ended(50.0, 0.7281, 1)) == []
    assert record(url, policy, ended(50.0, 0.7294, 2))[0] == (
        "an earlier run of BSP alone collapsed: it ended at 0.4915, far from the other runs of this"
        " job, and is no target; another one has to measure it"
    )
    planned = planned_run(url)
    assert planned.band is not None
    assert (planned.band.target_accuracy, planned.band.curve) == (None, ())
    assert planned.policy is not None
    with open_database(url, create=False) as database:
        known = as_known_now(database, planned.policy)
        job = used_job(database, planned.policy)
        assert [one.result.kept for one in use_facts(database)] == [None] * 3
        assert band(database, planned.policy) == Band(None, 0.01)
    assert known.target_accuracy is None
    assert job.strategy().target_accuracy is None
    assert all(run.switch_percent < 100 for run in job.observations)
    page = CliRunner().invoke(main, ["policy", "show", "digits", "--storage", url])
    assert page.exit_code == 0
    assert "0.4915 is" not in page.stdout
    assert "1 run of the first protocol alone collapsed" in page.stdout
    assert load_report(url, "digits").acceptance is None
    # What the next one reaches is the target.
    said = record(url, planned.policy, ended(100.0, 0.7301, 3))
    assert "the target is measured: BSP alone reached an accuracy of 0.7301" in said[0]
    assert versions(url)[-1].target_accuracy == pytest.approx(0.7301)
    assert planned_run(url).band.target_accuracy == pytest.approx(0.73, abs=0.002)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("metric", "alone", "measured"),
    [
        (Metric(), (0.7281, 0.4915, 0.7294, 0.731), 0.0049),
        (
            Metric("loss", "min", lowest=None, highest=None),
            (-2.40, -2.41, -2.405, -2.402, -9.2, -2.4),
            0.0094,
        ),
    ],
)
def test_a_run_that_collapsed_measures_no_threshold(
    url: str, metric: Metric, alone: Sequence[float], measured: float
) -> None:
    described = DescribedMetric(*astuple(metric))
    identity = replace(IDENTITY, job=replace(IDENTITY.job, described_metric=described))
    runs = len(alone) - 1
    with open_database(url, create=True) as database:
        policy: TimingPolicy | None = None
        for seed, accuracy in enumerate(alone):
            made = ended(100.0, accuracy, seed)
            made = replace(made, spec=replace(made.spec, identity=identity))
            policy = policy or first_policy(
                database, identity, "digits", made, allowed=AllowedLoss(0.0, runs)
            )
            assert policy is not None
            use = whole_use(policy, uuid.uuid4().hex, made)
            assert use is not None
            record_use(database, use)
            job = used_job(database, policy)
            if seed < runs:
                assert job.threshold == 0
    assert job.threshold == pytest.approx(measured, rel=0.2)
    assert job.goal is not None
    assert job.goal.accuracy == pytest.approx(statistics.fmean(sorted(alone)[1:]))
