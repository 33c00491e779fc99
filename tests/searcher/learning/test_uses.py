"""What the uses in a database say of a policy, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncswitch.cli.search.main import main
from syncswitch.searcher.learning import UsedJob, after_use, band, revise, used_job
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.guard import Band, BandPoint, GuardOutcome
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.use import whole_use
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.uses.store import record_use
from tests.storage.conftest import IDENTITY, POLICY, RECORD, SEARCH, sent_back
from tests.warm_server import at_once

BAND = Band(0.9, 0.01, 2, (BandPoint(500, 0.8, 0.0), BandPoint(1000, 0.9, 0.0)))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path}/job.db", create=True) as opened:
        TrialStore(opened).register(IDENTITY, "digits", SEARCH)
        PolicyRegistry(opened).publish(replace(POLICY, band=BAND))
        yield opened


@pytest.fixture
def policy(database: Database) -> TimingPolicy:
    found = PolicyRegistry(database).get(IDENTITY.fingerprint, 1)
    assert found is not None
    return found


def record_uses(
    database: Database,
    policy: TimingPolicy,
    kept: Iterable[bool],
    outcome: Callable[[float], GuardOutcome] = sent_back,
    identity: WorkloadIdentity = IDENTITY,
) -> None:
    """Those that do not keep the accuracy are sent back, and then end with that of BSP."""
    for number, is_kept in enumerate(kept):
        percent = policy.switch_percent
        spec = replace(RECORD.spec, identity=identity, switch_percent=percent, seed=number)
        record = replace(
            RECORD,
            spec=spec,
            stopped_early=False,
            inherited_seconds=0.0,
            converged_accuracy=0.9 + 0.002 * (-1) ** number,
            guard=GuardOutcome(percent) if is_kept else outcome(percent),
        )
        use = whole_use(policy, f"{policy.study}-{policy.version}-{number}", record)
        assert use is not None
        assert record_use(database, use)


def test_a_policy_that_fails_again_and_again_gets_a_later_switch(
    database: Database, policy: TimingPolicy
) -> None:
    registry = PolicyRegistry(database)
    registry.set_alias(policy.fingerprint, "pinned", 1)
    record_uses(database, policy, [True, False, False, False])
    revised = revise(database, policy)
    assert revised is not None
    found, new = revised
    assert (new.version, new.switch_percent) == (2, found.answer.switch_percent)
    assert new.switch_percent > 12.5
    assert new.reason == found.why
    assert found.why.startswith("3 of 4 switches failed with version 1, and a later switch is")
    assert new.evidence == policy.evidence
    assert new.band is not None
    assert new.band.curve == BAND.curve
    assert registry.aliases(policy.fingerprint) == {"current": 2, "pinned": 1}
    # It was revised, and its successor has not been used yet.
    assert revise(database, policy) is None
    assert revise(database, new) is None


def test_a_switch_that_failed_at_the_end_of_a_use_counts_with_its_accuracy(
    database: Database, policy: TimingPolicy
) -> None:
    def at_the_end(percent: float) -> GuardOutcome:
        (failed,) = sent_back(percent).failed
        return GuardOutcome(100.0, (replace(failed, worker_step=1000, accuracy=0.87),))

    record_uses(database, policy, [False], at_the_end)
    lessons = used_job(database, policy).observations()[len(policy.evidence) :]
    told = [
        (one.switch_percent, one.accuracy, one.alarmed)
        for one in lessons
        if one.switch_percent < 100
    ]
    assert told == [(12.5, 0.87, False)]


def test_whoever_moved_current_meanwhile_is_obeyed(
    database: Database, policy: TimingPolicy
) -> None:
    registry = PolicyRegistry(database)
    record_uses(database, policy, [False, False, False])
    job = used_job(database, policy)
    found = job.revision()
    assert found is not None
    other = registry.publish(replace(POLICY, study="another search", switch_percent=50.0))
    with pytest.raises(PolicyError, match="is version 2, not version 1 any more"):
        registry.publish(job.draft(found), replaces=policy.version)
    assert revise(database, policy) is None
    assert registry.aliases(policy.fingerprint) == {"current": other.version}


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
    simulated = replace(IDENTITY, simulated_cluster="5" * 64)
    search = replace(SEARCH, study="simulated-1", fingerprint=simulated.fingerprint)
    TrialStore(database).register(simulated, "digits", search)
    changes = {"fingerprint": simulated.fingerprint, "study": search.study, "band": BAND}
    other = PolicyRegistry(database).publish(replace(POLICY, **changes))
    for one, identity in ((policy, IDENTITY), (other, simulated)):
        record_uses(database, one, [True, False, False, False], identity=identity)
        (proposal,) = after_use(database, one)
        why, command = proposal.split("; publish it with: syncswitch-search ")
        assert why.startswith("3 of 4 switches failed with version 1, and a later switch is")
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
    assert words[1].startswith("8 of 28 switches failed with version 1, and a later switch is")
    shown = CliRunner().invoke(main, ["policy", "show", "digits", "--storage", database.url])
    assert f"; the guard went back 8 times; {drift}." in " ".join(shown.output.split())


def test_a_target_that_was_measured_too_high_is_found_out(
    database: Database, policy: TimingPolicy
) -> None:
    record_uses(database, policy, [False, True, False])
    found, job = band(database, policy), used_job(database, policy)
    assert found is not None
    # Two runs of the search, and those that the guard sent back.
    assert found.target_accuracy == pytest.approx((2 * 0.9 + 0.902 + 0.902) / 4)
    assert (found.runs, found.curve) == (2, BAND.curve)
    given = replace(policy, band=replace(BAND, runs=0, curve=()))
    assert UsedJob(given, job.uses).band({}) == given.band
    assert job.kept == [False, True, False]
