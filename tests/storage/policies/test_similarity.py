"""The order of suggestions: what is certain about it, for all jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from syncswitch.storage.policies.similarity import (
    REAL,
    Candidate,
    JobFacts,
    differences,
    distance,
    is_comparable,
    is_related,
    nearest,
    not_compared,
    ranked,
)
from syncswitch.storage.records.job import WorkloadIdentity
from tests.storage.conftest import IDENTITY

START = datetime(2026, 1, 31, tzinfo=timezone.utc)
REST = [field.name for field in fields(JobFacts) if field.name not in {"workers"}]

numbers = st.integers(1, 2**62)
rates = st.floats(1e-300, 1e300)
words = st.sampled_from(["a", "b", "c"])
schedules = st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1)), max_size=2).map(tuple)


def unknown_or(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


jobs = st.builds(
    JobFacts,
    workers=st.integers(1, 2**31 - 1),
    first_protocol=unknown_or(words),
    second_protocol=unknown_or(words),
    total_worker_steps=unknown_or(numbers),
    model=unknown_or(words),
    data_set=unknown_or(words),
    loss=unknown_or(words),
    optimizer=unknown_or(words),
    batch_size=unknown_or(numbers),
    learning_rate=unknown_or(rates),
    momentum=unknown_or(st.floats(0, 1)),
    learning_rate_boundaries=unknown_or(schedules),
    metric=unknown_or(words),
    evaluation_interval_worker_steps=unknown_or(numbers),
    simulated_cluster=unknown_or(st.sampled_from([REAL, "5", "6"])),
)
times = st.integers(0, 3).map(lambda days: START + timedelta(days=days))
candidates = st.lists(
    st.builds(Candidate, jobs, st.sampled_from("abcd"), st.integers(1, 3), times), max_size=6
)


def pairs() -> st.SearchStrategy[tuple[JobFacts, JobFacts]]:
    """Two jobs that are often alike: all facts of the second one are the first one's, or new."""

    def like(job: JobFacts) -> st.SearchStrategy[tuple[JobFacts, JobFacts]]:
        return st.builds(
            lambda other, names: (
                job,
                replace(other, **{name: getattr(job, name) for name in names}),
            ),
            jobs,
            st.sets(st.sampled_from([field.name for field in fields(JobFacts)])),
        )

    return jobs.flatmap(like)


@given(pair=pairs())
def test_a_distance_is_the_same_in_both_directions(pair: tuple[JobFacts, JobFacts]) -> None:
    one, other = pair
    assert distance(one, other) == distance(other, one)
    assert is_comparable(one, other) == is_comparable(other, one)
    assert not_compared(one, other) == not_compared(other, one)


@given(pair=pairs())
def test_it_is_zero_if_and_only_if_everything_known_is_equal(
    pair: tuple[JobFacts, JobFacts],
) -> None:
    one, other = pair
    known = [
        name
        for name in ("workers", *REST)
        if None not in (getattr(one, name), getattr(other, name))
    ]
    differ = {name for name in known if getattr(one, name) != getattr(other, name)}
    is_zero = distance(one, other) == (0, 0)
    assert is_zero == (not differ - {"first_protocol", "second_protocol"})
    assert len(differences(one, other)) == len(differ)


@given(wanted=jobs, near=jobs, far=jobs)
def test_the_size_of_the_cluster_decides_before_everything_else(
    wanted: JobFacts, near: JobFacts, far: JobFacts
) -> None:
    assume(far.workers != wanted.workers)
    near = replace(near, workers=wanted.workers)
    assert distance(wanted, near) < distance(wanted, far)


@given(wanted=jobs, found=candidates)
def test_what_is_suggested_is_comparable_and_the_least_different(
    wanted: JobFacts, found: list[Candidate]
) -> None:
    best = nearest(wanted, found)
    comparable = [item for item in found if is_comparable(wanted, item.facts)]
    assert (best is None) == (not comparable)
    if best is not None:
        assert best in comparable
        smallest = min(distance(wanted, item.facts).size for item in comparable)
        assert distance(wanted, best.facts).size == smallest


@given(wanted=jobs, found=candidates, order=st.randoms())
def test_the_order_of_the_candidates_does_not_matter(
    wanted: JobFacts, found: list[Candidate], order: Any
) -> None:
    # A fingerprint stands for one job, and with the version for one policy.
    found = list({(item.fingerprint, item.version): item for item in found}.values())
    shuffled = list(found)
    order.shuffle(shuffled)
    assert nearest(wanted, shuffled) == nearest(wanted, found)
    assert ranked(wanted, shuffled) == ranked(wanted, found)


@given(wanted=jobs, found=candidates)
def test_a_ranking_holds_what_is_comparable_from_near_to_far(
    wanted: JobFacts, found: list[Candidate]
) -> None:
    order = ranked(wanted, found)
    assert order[:1] == [best for best in [nearest(wanted, found)] if best is not None]
    sizes = [distance(wanted, item.facts).size for item in order]
    assert sizes == sorted(sizes)
    comparable = [item for item in found if is_comparable(wanted, item.facts)]
    assert Counter(map(repr, order)) == Counter(map(repr, comparable))


@given(
    changes=st.fixed_dictionaries(
        {},
        optional={
            "name": st.just("other"),
            "model": st.sampled_from([None, "another"]),
            "data_set": st.sampled_from([None, "another"]),
            "workers": st.sampled_from([1, 16, 17]),
            "total_worker_steps": st.integers(1, 10**6),
            "batch_size": st.integers(1, 1000),
            "second_protocol": st.just("ssp"),
            "simulated_cluster": st.sampled_from(["5", "6"]),
        },
    )
)
def test_to_be_related_is_mutual(changes: dict[str, Any]) -> None:
    other = replace(IDENTITY, **changes)
    assert is_related(IDENTITY, other) == is_related(other, IDENTITY)
    assert is_related(other, other)


@given(wanted=jobs, dates=st.lists(times, min_size=1, max_size=5))
def test_of_equally_near_ones_the_newest_is_suggested(
    wanted: JobFacts, dates: list[datetime]
) -> None:
    found = [Candidate(wanted, f"{number}", 1, date) for number, date in enumerate(dates)]
    best = nearest(wanted, found)
    assert best is not None
    assert best.created_at == max(dates)
    assert best.fingerprint == str(dates.index(max(dates)))


@pytest.mark.parametrize(
    ("workers", "is_near"),
    [(1, False), (2, False), (3, True), (4, True), (10, True), (40, True), (41, False)],
)
def test_a_cluster_more_than_four_times_larger_or_smaller_says_nothing(
    workers: int, is_near: bool
) -> None:
    wanted = JobFacts(workers=10)
    assert is_comparable(wanted, JobFacts(workers=workers)) == is_near


@pytest.mark.parametrize("name", ["first_protocol", "second_protocol"])
def test_another_pair_of_protocols_is_never_suggested(
    identity: WorkloadIdentity, name: str
) -> None:
    wanted = JobFacts.of(identity)
    other = replace(wanted, **{name: "ssp"})
    assert nearest(wanted, [Candidate(other, "f", 1, START)]) is None
    # Who does not say which protocols, takes any.
    open_one = replace(wanted, first_protocol=None, second_protocol=None)
    assert nearest(open_one, [Candidate(other, "f", 1, START)]) is not None


@pytest.mark.parametrize(
    ("nearer", "farther"),
    [
        ({"model": "x", "data_set": "x", "momentum": 0.0}, {"workers": 5}),
        ({"model": "x"}, {"total_worker_steps": 2000}),
        ({"total_worker_steps": 1100}, {"model": "x"}),
        ({"data_set": "x"}, {"model": "x"}),
        ({"batch_size": 64}, {"data_set": "x"}),
        ({"learning_rate": 0.2}, {"batch_size": 64}),
        ({"momentum": 0.0}, {"learning_rate": 0.2}),
        ({"optimizer": "x"}, {"momentum": 0.0}),
        ({"learning_rate_boundaries": ()}, {"optimizer": "x"}),
        ({"batch_size": 64}, {"batch_size": 128}),
        ({"total_worker_steps": 1100}, {"simulated_cluster": "5"}),
        ({"model": "x"}, {"simulated_cluster": "5"}),
        ({"simulated_cluster": "5"}, {"total_worker_steps": 2100}),
        ({"simulated_cluster": "5"}, {"workers": 5}),
        ({}, {"evaluation_interval_worker_steps": 60}),
        # What is not known may differ, too.
        ({"momentum": 0.0}, {"model": None}),
        ({"model": None}, {"model": "x"}),
        ({}, {"model": None}),
    ],
)
def test_what_matters_more_decides(
    identity: WorkloadIdentity, nearer: dict[str, Any], farther: dict[str, Any]
) -> None:
    wanted = JobFacts.of(identity)
    near = Candidate(replace(wanted, **nearer), "a", 1, START)
    far = Candidate(replace(wanted, **farther), "b", 1, START + timedelta(days=1))
    assert nearest(wanted, [far, near]) == near


def test_differences_are_told_in_words_the_most_important_first(
    identity: WorkloadIdentity,
) -> None:
    wanted = JobFacts.of(identity)
    known = replace(
        wanted,
        workers=1,
        second_protocol="ssp",
        total_worker_steps=64_000,
        model="another digest",
        data_set="faces",
        batch_size=64,
        learning_rate=0.05,
        momentum=0.0,
        optimizer='{"class":"Adam","beta_1":0.9,"beta_2":0.999,"epsilon":1e-07}',
        learning_rate_boundaries=(),
        loss="mse",
        metric=None,
        evaluation_interval_worker_steps=100,
    )
    assert differences(wanted, known) == [
        "1 worker instead of 4: a larger cluster needs a later switch",
        "second protocol ssp instead of asp",
        "64,000 worker-steps instead of 1,000",
        "another model",
        "data set faces instead of digits",
        "batch size 64 instead of 32",
        "learning rate 0.05 instead of 0.1",
        "momentum 0 instead of 0.9",
        'optimizer {"class":"Adam","beta_1":0.9,"beta_2"... instead of {"name":"sgd"}',
        "learning-rate schedule no change instead of x 0.1 at 500",
        "loss mse instead of crossentropy",
        "tested every 100 worker-steps instead of 50",
    ]
    assert not_compared(wanted, known) == ["metric"]
    assert differences(known, wanted)[0] == (
        "4 workers instead of 1: a smaller cluster may switch earlier"
    )


@pytest.mark.parametrize(
    ("field", "one", "other", "text"),
    [
        ("optimizer", "x" * 50, "x" * 50 + "y", "another optimizer"),
        ("learning_rate", 0.1, 0.1 + 1e-12, "another learning rate"),
        (
            "learning_rate_boundaries",
            ((500, 0.1),),
            ((500, 0.1 + 1e-12),),
            "another learning-rate schedule",
        ),
    ],
)
def test_a_difference_too_small_to_print_is_one_all_the_same(
    field: str, one: Any, other: Any, text: str
) -> None:
    jobs = [JobFacts(workers=1, **{field: value}) for value in (one, other)]
    assert differences(*jobs) == [text]
    assert distance(*jobs) > (0, 0)


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (None, "5", "a simulated cluster instead of a real one: its speeds are a model's"),
        ("5", None, "a real cluster instead of a simulated one"),
        ("5", "6", "another simulated cluster"),
    ],
)
def test_a_simulated_job_and_a_real_one_are_two_jobs(
    identity: WorkloadIdentity, one: str | None, other: str | None, text: str
) -> None:
    jobs = [JobFacts.of(replace(identity, simulated_cluster=digest)) for digest in (one, other)]
    assert distance(*jobs) > (0, 0)
    assert differences(*jobs) == [text]
    assert differences(jobs[0], jobs[0]) == []


@given(changes=st.dictionaries(st.sampled_from(["model", "loss"]), st.just("other")))
def test_of_two_jobs_that_are_the_same_otherwise_the_real_one_is_nearer(
    changes: dict[str, Any],
) -> None:
    real = replace(IDENTITY, **changes)
    found = [
        Candidate(JobFacts.of(job), job.fingerprint, 1, START + timedelta(days=days))
        for days, job in enumerate((real, replace(real, simulated_cluster="5")))
    ]
    assert ranked(JobFacts.of(IDENTITY), found) == found
    wanted = replace(IDENTITY, simulated_cluster="5")
    assert ranked(JobFacts.of(wanted), found) == found[::-1]
