"""Which policy `syncswitch-run` takes; that of a simulated job is for no real one."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from syncswitch.cli.words import OPTION_WORDS
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.learning.next_run import NextRun
from syncswitch.searcher.training.policy import (
    ChosenRun,
    RunRequest,
    SwitchChoice,
    _with_second_phases,
    choose,
    size_and_pair,
)
from syncswitch.searcher.training.train import trial_of
from syncswitch.searcher.training.uses import RunRecorder
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.file import write_policy
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import RegisteredWorkload, ScheduledJob
from syncswitch.trainers.job.loading import load_workload
from tests.failing import fails
from tests.records import changed
from tests.searcher.policies import policy_of, published
from tests.storage.conftest import IDENTITY, POLICY
from tests.wording import Said

GUARDED = {"guarded": True, "band": Band(POLICY.target_accuracy, POLICY.threshold, 1)}
SIMULATED = changed(IDENTITY, simulated_cluster="5" * 64)
LARGER = changed(SIMULATED, workers=500)


NAMED = SwitchChoice(policy="current")


def request_for(
    url: str,
    workers: int | None = None,
    pair: tuple[str, str] | None = None,
    *,
    when: SwitchChoice = NAMED,
    reference: str = "digits",
    cluster: LocalTrainer = LocalTrainer(),  # noqa: B008 (frozen)
) -> RunRequest:
    def tell(line: str) -> None:
        print(line, file=sys.stderr)

    return RunRequest(cluster, reference, workers, pair, None, RunRecorder(url, tell), when)


@pytest.mark.parametrize("choice", ["current", "1"])
def test_only_a_simulated_policy_is_an_error_that_says_how_to_try_it(
    sqlite_url: str, choice: str, said: Said
) -> None:
    published(sqlite_url, SIMULATED)
    for workers, pair in ((None, None), (4, ("bsp", "asp"))):
        with pytest.raises(PolicyError) as caught:
            choose(request_for(sqlite_url, workers, pair, when=SwitchChoice(policy=choice)))
        said(OPTION_WORDS.say(caught.value))


def test_of_a_real_policy_and_a_simulated_one_the_real_one_is_meant(sqlite_url: str) -> None:
    for identity in (IDENTITY, SIMULATED, LARGER):
        published(sqlite_url, identity)
    run = chosen(sqlite_url, uses=None).run
    assert run.policy is not None
    assert run.policy.job.fingerprint == IDENTITY.fingerprint
    with fails("policy-unfit"):
        choose(request_for(sqlite_url, 500))
    with pytest.raises(PolicyError) as caught:
        choose(request_for(sqlite_url, 2))
    for have in ("500 simulated workers", "4 simulated workers", "4 workers"):
        assert f"{have}, bsp,asp" in str(caught.value)


def test_a_run_without_a_policy_is_on_the_cluster_of_the_current_one(sqlite_url: str) -> None:
    for identity in (changed(IDENTITY, workers=8, second_protocol="ssp:3"), LARGER):
        published(sqlite_url, identity)
    assert size_and_pair(request_for(sqlite_url)) == (8, ("bsp", "ssp:3"))
    assert size_and_pair(request_for(sqlite_url, reference="other")) == (4, ("bsp", "asp"))
    assert size_and_pair(request_for("sqlite:///none.db")) == (4, ("bsp", "asp"))
    assert not Path("none.db").exists()


def test_a_database_that_does_not_say_the_job_makes_it_no_other_one(
    path: Path, sqlite_url: str
) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"nothing of the kind " * 500)
    for workers, pair in ((None, None), (8, None), (None, ("bsp", "asp"))):
        with fails("parameter-missing", r"^the workers and protocols of this job cannot be"):
            size_and_pair(request_for(sqlite_url, workers, pair))
    assert size_and_pair(request_for(sqlite_url, 8, ("bsp", "asp"))) == (8, ("bsp", "asp"))


def test_a_file_says_it_too(tmp_path: Path, said: Said) -> None:
    file, url = str(tmp_path / "my policy.json"), "sqlite:///unused.db"
    write_policy(Path(file), policy_of(IDENTITY), RegisteredWorkload(IDENTITY.job, "digits"))
    found = choose(request_for(url, when=SwitchChoice(policy=file), cluster=KnownJob()))
    assert found.run.policy == policy_of(IDENTITY)
    write_policy(Path(file), policy_of(SIMULATED), RegisteredWorkload(SIMULATED.job, "digits"))
    for workers in (None, 8):
        with pytest.raises(PolicyError) as caught:
            choose(request_for(url, workers, when=SwitchChoice(policy=file)))
        said(OPTION_WORDS.say(caught.value))


@dataclass(frozen=True)
class KnownJob(LocalTrainer):
    """Knows the job without loading it."""

    def load(self, reference: str, workers: int) -> Any:
        return reference

    def identity(self, workload: Any, workers: int, protocols: Any) -> ScheduledJob:
        return IDENTITY


def chosen(url: str, *, uses: int | None, is_guarded: bool = True) -> ChosenRun:
    when = SwitchChoice(
        guarded=is_guarded, learn=False if uses is None else None, expected_runs=uses or 1
    )
    return choose(request_for(url, cluster=KnownJob(), when=when))


def test_a_run_that_learns_begins_from_a_simulated_policy_of_just_this_job(sqlite_url: str) -> None:
    published(sqlite_url, changed(SIMULATED, batch_size=5))
    assert chosen(sqlite_url, uses=30).run.begins_from is None
    published(sqlite_url, SIMULATED)
    for uses, is_guarded in ((None, True), (30, False)):
        with fails("policy-unfit"):
            chosen(sqlite_url, uses=uses, is_guarded=is_guarded)
    found = chosen(sqlite_url, uses=30)
    run = found.run
    assert (found.identity, run.policy, run.learns) == (IDENTITY, None, True)
    assert run.switch_percent == POLICY.switch_percent
    assert run.begins_from is not None
    assert run.begins_from.job.fingerprint == SIMULATED.fingerprint
    assert run.band is not None


def test_a_run_may_try_another_switch_than_its_policy(
    sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = published(sqlite_url, **GUARDED)
    found_run = chosen(sqlite_url, uses=1000)
    run = found_run.run
    assert (run.learns, run.policy) == (True, found)
    assert run.switch_percent != found.switch_percent
    assert trial_of(found_run, print).retry_percents[-1] == 50
    assert capsys.readouterr().err.endswith(
        f"tries a switch to ASP at {run.switch_percent:g} %, as that may save later runs more time"
        f" than it costs; policy version 1 switches at {found.switch_percent:g} %, and"
        " learn=False keeps to it\n"
    )
    last = chosen(sqlite_url, uses=1).run
    assert (last.learns, last.switch_percent) == (True, found.switch_percent)


@pytest.mark.parametrize(
    ("found", "uses", "is_guarded"),
    [
        (GUARDED, None, True),  # --no-learn, or a version that was named
        (GUARDED, 1000, False),
        ({"guarded": False}, 1000, True),  # found without a guard
    ],
)
def test_a_run_keeps_to_its_policy(
    sqlite_url: str, found: dict[str, Any], uses: int | None, is_guarded: bool
) -> None:
    policy = published(sqlite_url, **found)
    run = chosen(sqlite_url, uses=uses, is_guarded=is_guarded)
    assert (run.run.learns, run.run.switch_percent) == (False, policy.switch_percent)
    has_band, spec = is_guarded and policy.band is not None, trial_of(run, print)
    assert (bool(spec.retry_percents), spec.band is not None) == (has_band, has_band)


def test_a_first_run_chooses_its_second_phase_where_nobody_has_said_it(sqlite_url: str) -> None:
    workload, planned = (
        load_workload("digits"),
        NextRun(None, 6.25, learns=True, is_first_switch=True),
    )

    def candidates(
        planned: NextRun = planned, pair: tuple[str, str] | None = None, **fields: Any
    ) -> list[str]:
        request = request_for(sqlite_url, 4, pair)
        job = replace(workload, **fields)
        identity = LocalTrainer().identity(job, 4, pair or ("bsp", "asp"))
        found = _with_second_phases(request, job, identity, planned)
        return [one.second_protocol for one in found.candidates]

    assert candidates() == ["asp", "qsr:8:0.22:semi-sync"]
    for said in (
        candidates(pair=("bsp", "asp")),
        candidates(replace(planned, is_first_switch=False)),
        candidates(replace(planned, switch_percent=100.0)),
        candidates(momentum_after_switch="same"),
        candidates(total_worker_steps=200, learning_rate_boundaries=()),
    ):
        assert said == []
    for alone in (
        candidates(optimizer=keras_adam),
        candidates(batch_after_switch="global"),
        candidates(total_worker_steps=800, learning_rate_boundaries=()),
    ):
        assert alone == ["asp"]


def test_a_run_may_fall_back_to_what_a_first_run_would_try(sqlite_url: str) -> None:
    workload, local = load_workload("digits"), "qsr:8:0.22:semi-sync"

    def fallbacks(
        second: str, percent: float = 6.25, is_said: bool = False, **fields: Any
    ) -> list[str]:
        pair = ("bsp", second)
        request = request_for(sqlite_url, 4, pair if is_said else None)
        job = replace(workload, **fields)
        planned = NextRun(None, percent, learns=True)
        identity = LocalTrainer().identity(job, 4, pair)
        found = _with_second_phases(request, job, identity, planned)
        assert found.candidates == ()
        run = replace(found, band=Band(None, 0.01))
        assert trial_of(ChosenRun(job, identity, 0, run), print).fallbacks == found.fallbacks
        return [one.second_protocol for one in found.fallbacks]

    assert fallbacks("asp") == fallbacks(local) == ["asp", local]
    for none in (
        fallbacks("asp", is_said=True),
        fallbacks("asp", 100.0),
        fallbacks("local-sgd:8"),
        fallbacks("local-sgd:8:semi-sync"),
        fallbacks("asp", optimizer=keras_adam),
    ):
        assert none == []


def keras_adam() -> Any:
    import keras

    return keras.optimizers.Adam()
