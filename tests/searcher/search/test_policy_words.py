"""Policies in words: what was measured, what is gained, and what to expect."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.searcher.search.policy_words import (
    expected_time_text,
    kept_text,
    policy_sentences,
    policy_text,
    promise_sentences,
    speed_up_text,
)
from syncswitch.searcher.speed_up import SpeedUp
from syncswitch.searcher.words import accuracy_interval, momentum_text
from syncswitch.storage.records.policy import Evidence
from tests.records import changed
from tests.storage.conftest import IDENTITY, POLICY
from tests.wording import Said

KEPT = changed(
    POLICY, min_kept_share=0.95, kept_share=0.93, baseline_kept_share=0.954, confidence=0.8
)
GUARDED = changed(
    KEPT, guarded=True, min_kept_share=None, delivered_share=0.961, expected_time=0.412
)
ALONE = changed(KEPT, switch_percent=100.0, kept_share=0.954, confidence=1.0)


def test_a_policy_says_what_was_measured_and_in_how_many_runs(said: Said) -> None:
    second = Evidence("digits-1", 2, 100.0, 1, 0.91, False, 6.0)
    given = changed(POLICY, baseline_seconds=None, evidence=POLICY.evidence[:1])
    for policy in (
        replace(POLICY, target_accuracy=0.7295, evidence=(*POLICY.evidence, second)),
        given,
        changed(given, mean_accuracy=None, evidence=()),
        replace(POLICY, switch_percent=0.0),
        *(
            changed(POLICY, training_seconds=seconds, speed_up_low=low, speed_up_high=high)
            for seconds, low, high in ((3.0, 1.5, 2.5), (5.0, 0.9, 1.6), (12.0, 0.4, 0.6))
        ),
        changed(ALONE, reason="an earlier switch saves no time"),
        ALONE,
    ):
        said(policy_sentences(policy, IDENTITY))


def test_it_promises_what_later_runs_may_expect(said: Said) -> None:
    """The paper promises nothing of a single run."""
    for policy in (
        POLICY,
        KEPT,
        changed(KEPT, kept_share=None, min_kept_share=0.93),
        GUARDED,
        changed(GUARDED, confidence=0.997),
        changed(GUARDED, confidence=None),
        changed(GUARDED, speed_up_low=0.8),
        changed(GUARDED, expected_time=None),
        ALONE,
        changed(ALONE, guarded=True, delivered_share=0.954),
        changed(ALONE, baseline_kept_share=None),
    ):
        said(f"{promise_sentences(policy)} / {kept_text(policy)} / {expected_time_text(policy)}")
    both = f"{policy_sentences(KEPT, IDENTITY)} {promise_sentences(KEPT)}"
    assert policy_text(KEPT, IDENTITY) == both


def test_a_number_says_how_sure_it_is(said: Said) -> None:
    for speed_up in (SpeedUp(2.94, 2.51, 3.33), SpeedUp(2.94, 2.94, 2.94), SpeedUp(2.94)):
        said(speed_up_text(speed_up))
    said(accuracy_interval(0.91, 0.9, 0.92))
    said(accuracy_interval(0.5, None, None))
    said(accuracy_interval(1.0, 1.0, 1.0))
    said(accuracy_interval(0.6, 0.0, 1.0))
    said(accuracy_interval(0.98, 0.9512, 1.0))


def test_who_has_the_optimizer_after_the_switch_is_said() -> None:
    assert [momentum_text(rule) for rule in (None, "own", "own-optimizer", "same", "zero")] == [
        None,
        "each worker keeps its own momentum",
        "each worker has an optimizer of its own",
        "all workers share one momentum",
        "all workers share one momentum, zero",
    ]
