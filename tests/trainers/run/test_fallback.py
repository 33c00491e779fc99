"""What follows a switch that has failed."""

from __future__ import annotations

import pytest

from syncswitch.storage.policies.second_phases import recorded_phases
from syncswitch.storage.records.job import Protocols
from syncswitch.trainers.run.fallback import Following, Switch, following, kept_share

ASP = Protocols("bsp", "asp", "own")
QSR = Protocols("bsp", "qsr:8:0.1:semi-sync", "semi-sync")
UNRECORDED = Protocols("bsp", "ssp:3", "own")
EARLY, LATE = Switch(ASP, 6.25), Switch(ASP, 25.0)


def test_all_phases_have_the_same_jobs() -> None:
    assert {len(one.times[100.0]) for one in recorded_phases()} == {7}


def test_a_switch_keeps_what_it_keeps_in_recorded_jobs() -> None:
    asp, qsr = recorded_phases()
    assert kept_share(EARLY) == pytest.approx(asp.mean_kept_share(6.25))
    between = (qsr.mean_kept_share(25.0) + qsr.mean_kept_share(50.0)) / 2
    assert kept_share(Switch(QSR, 37.5)) == pytest.approx(between)
    assert kept_share(Switch(UNRECORDED, 25.0)) is None


def test_jobs_that_fail_likewise_count_for_more() -> None:
    """By hand: a job counts by its share of runs that ASP loses there."""
    asp, qsr = recorded_phases()
    lost = [1 - share for share in asp.kept_shares[6.25]]
    kept = sum(a * b for a, b in zip(lost, qsr.kept_shares[6.25], strict=True)) / sum(lost)
    assert kept_share(Switch(QSR, 6.25), [EARLY]) == pytest.approx(kept)
    assert kept == pytest.approx(0.8965, abs=1e-4)
    assert kept_share(Switch(QSR, 6.25), [Switch(UNRECORDED, 6.25)]) == kept_share(
        Switch(QSR, 6.25)
    )


def test_what_is_expected_to_take_the_least_time_follows() -> None:
    """A failure is noticed after six tenths of the rest, and BSP does it again then."""
    kept = kept_share(Switch(QSR, 6.25), [EARLY])
    assert kept is not None
    share = 0.9375 * (0.62 * (kept + (1 - kept) * 0.6) + 1 - kept)
    found = following([EARLY], 25.0, {ASP: 0.61, QSR: 0.62})
    assert found == Following(Switch(QSR, 6.25), pytest.approx(share), 0.9375)
    for failed, later, paces, expected in (
        ([EARLY], 25.0, {ASP: 0.61, QSR: 0.7}, LATE),
        ([EARLY], 25.0, {ASP: 0.61}, LATE),
        ([EARLY], None, {ASP: 0.61, QSR: 0.95}, None),
        ([EARLY], 25.0, {ASP: 1.1, QSR: 1.1}, None),
        ([Switch(QSR, 6.25)], 25.0, {ASP: 0.46, QSR: 0.14}, Switch(QSR, 25.0)),
        ([Switch(QSR, 6.25)], 25.0, {ASP: 0.3, QSR: 0.33}, EARLY),
        ([EARLY, Switch(QSR, 6.25)], 25.0, {ASP: 0.3, QSR: 0.33}, LATE),
        ([EARLY, LATE], None, {ASP: 0.3, QSR: 0.33}, Switch(QSR, 25.0)),
        ([EARLY, Switch(QSR, 6.25), LATE], None, {ASP: 0.3, QSR: 0.33}, None),
    ):
        found = following(failed, later, paces)
        assert found is not None
        assert found.switch == expected


def test_where_the_usual_switch_is_of_unknown_time_it_is_made() -> None:
    assert following([EARLY], 25.0, {QSR: 0.1}) is None
    assert following([Switch(UNRECORDED, 6.25)], 25.0, {UNRECORDED: 0.5, QSR: 0.1}) is None
