"""Policies in words: what was measured, what is gained, and what to expect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncswitch.searcher.search.policy_words import (
    expected_time_text,
    kept_text,
    policy_sentences,
    policy_text,
    promise_sentences,
    speed_up_text,
)
from syncswitch.searcher.speed_up import SpeedUp
from syncswitch.searcher.words import accuracy_interval
from syncswitch.storage.records.policy import Evidence
from tests.records import changed
from tests.storage.conftest import IDENTITY, POLICY

KEPT = changed(
    POLICY, min_kept_share=0.95, kept_share=0.93, baseline_kept_share=0.954, confidence=0.8
)
GUARDED = changed(
    KEPT, guarded=True, min_kept_share=None, delivered_share=0.961, expected_time=0.412
)
ALONE = changed(KEPT, switch_percent=100.0, kept_share=0.954, confidence=1.0)


def test_it_says_what_was_measured_and_in_how_many_runs() -> None:
    second = Evidence("digits-1", 2, 100.0, 1, 0.91, False, 6.0)
    policy = replace(POLICY, target_accuracy=0.7295, evidence=(*POLICY.evidence, second))
    assert policy_text(policy, IDENTITY) == (
        "Train digits with BSP for the first 12.5 % of its 1,000 worker-steps, then with ASP. That"
        " is about 2.0 times as fast as BSP alone. It reached an accuracy of 0.8950 (1 run). BSP"
        " alone reached 0.9050 (2 runs), and up to 0.01 less is accepted."
    )


def test_a_target_that_was_given_is_called_one() -> None:
    policy = changed(POLICY, baseline_seconds=None, evidence=POLICY.evidence[:1])
    target = "The target is 0.9000, and up to 0.01 less is accepted."
    assert policy_sentences(policy, IDENTITY).endswith(
        f"then with ASP. It reached an accuracy of 0.8950 (1 run). {target}"
    )
    unmeasured = changed(policy, mean_accuracy=None, evidence=())
    assert policy_sentences(unmeasured, IDENTITY).endswith(f"then with ASP. {target}")


def test_without_the_first_protocol_it_says_so() -> None:
    assert policy_sentences(replace(POLICY, switch_percent=0.0), IDENTITY).startswith(
        "Train digits with ASP from the start, for all of its 1,000 worker-steps. That is about"
    )


def test_it_promises_a_share_of_later_runs_beside_that_of_the_first_protocol() -> None:
    share = (
        "About 93 of 100 runs should stay within 0.01 of BSP's mean accuracy; with BSP alone, about"
        " 95."
    )
    assert promise_sentences(KEPT) == (
        f"{share} The search is 80 % sure that enough runs keep the accuracy: 95 of 100, or at most"
        " 5 fewer than BSP alone."
    )
    assert (
        policy_text(KEPT, IDENTITY)
        == f"{policy_sentences(KEPT, IDENTITY)} {promise_sentences(KEPT)}"
    )
    assert promise_sentences(changed(KEPT, kept_share=None, min_kept_share=0.93)) == (
        "The search is 80 % sure that enough runs keep the accuracy: 93 of 100, or at most 7 fewer"
        " than BSP alone."
    )
    assert kept_text(KEPT) == "about 93 of 100 runs (95 with BSP alone)"
    # The paper promises nothing of a single run.
    assert (promise_sentences(POLICY), kept_text(POLICY), expected_time_text(POLICY)) == (
        "",
        None,
        None,
    )


def test_a_guarded_policy_tells_what_is_delivered_from_what_the_bare_switch_keeps() -> None:
    shares = (
        "About 96 of 100 guarded runs should deliver a model within 0.01 of BSP's mean"
        " accuracy; without a guard, about 93; with BSP alone, about 95."
    )
    time = "A guarded run is expected to take 0.41 of the time of BSP alone, failed switches"
    assert promise_sentences(GUARDED) == (
        f"{shares} {time} included (probability of saving time: 80 %)."
    )
    assert promise_sentences(changed(GUARDED, confidence=0.997)).endswith("time: over 99 %).")
    for unsure in (changed(GUARDED, confidence=None), changed(GUARDED, speed_up_low=0.8)):
        assert promise_sentences(unsure) == f"{shares} {time} included."
    assert promise_sentences(changed(GUARDED, expected_time=None)) == shares
    assert kept_text(GUARDED) == (
        "about 96 of 100 guarded runs (93 without a guard, 95 with BSP alone)"
    )
    assert expected_time_text(GUARDED) == "0.41 of the time of BSP alone"
    alone = changed(ALONE, guarded=True, delivered_share=0.954)
    assert (promise_sentences(alone), kept_text(alone)) == (
        promise_sentences(ALONE),
        kept_text(ALONE),
    )


def test_a_speed_up_says_how_sure_it_is() -> None:
    assert speed_up_text(SpeedUp(2.94, 2.51, 3.33)) == "2.9 times as fast (2.5 to 3.3)"
    assert speed_up_text(SpeedUp(2.94, 2.94, 2.94)) == "2.9 times as fast"
    assert speed_up_text(SpeedUp(2.94)) == "about 2.9 times as fast"


@pytest.mark.parametrize(
    ("seconds", "low", "high", "said"),
    [
        (3.0, 1.5, 2.5, "2.0 times as fast as BSP alone (1.5 to 2.5)."),
        (5.0, 0.9, 1.6, "1.2 times as fast as BSP alone (0.9 to 1.6), so it may gain nothing."),
        (
            12.0,
            0.4,
            0.6,
            "0.5 times as fast as BSP alone (0.4 to 0.6), so the switch gains nothing",
        ),
    ],
)
def test_a_policy_that_may_not_be_faster_says_so(
    seconds: float, low: float, high: float, said: str
) -> None:
    policy = changed(POLICY, training_seconds=seconds, speed_up_low=low, speed_up_high=high)
    assert f" That is {said}" in policy_sentences(policy, IDENTITY)


def test_an_interval_holds_what_an_accuracy_can_be() -> None:
    assert accuracy_interval(0.91, 0.9, 0.92) == "0.9100 ± 0.0100"
    assert accuracy_interval(0.5, None, None) == "0.5000"
    assert accuracy_interval(1.0, 1.0, 1.0) == "1.0000 ± 0.0000"
    assert accuracy_interval(0.6, 0.0, 1.0) == "0.6000 (0 to 1)"
    assert accuracy_interval(0.98, 0.9512, 1.0) == "0.9800 (0.9512 to 1)"


def test_bsp_alone_has_a_reason_and_its_own_share() -> None:
    saves_nothing = changed(ALONE, reason="an earlier switch saves no time")
    for policy, why in (
        (saves_nothing, "an earlier switch saves no time"),
        (ALONE, "no switch to ASP that was tried keeps the accuracy"),
    ):
        assert policy_sentences(policy, IDENTITY) == (
            f"Train digits with BSP for all of its 1,000 worker-steps: {why}. BSP alone reached"
            " 0.9000 (1 run), and up to 0.01 less is accepted."
        )
    assert promise_sentences(ALONE) == (
        "About 95 of 100 runs should stay within 0.01 of their mean accuracy."
    )
    assert promise_sentences(changed(ALONE, baseline_kept_share=None)) == ""
