"""The warning against a policy without its guard."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.storage.policies.unguarded import unguarded_warning
from tests.records import changed
from tests.storage.conftest import POLICY


def test_a_policy_for_guarded_trainings_warns() -> None:
    guarded = changed(POLICY, guarded=True, kept_share=0.86)
    assert str(unguarded_warning(guarded)) == (
        "this policy was found for guarded runs: without a guard about 86 of 100 runs keep the"
        " accuracy; for a careful one, run: search('WORKLOAD', guarded=False)"
    )
    assert "a guard fewer runs" in str(unguarded_warning(changed(guarded, kept_share=None)))
    for fine in (POLICY, replace(guarded, switch_percent=100.0)):
        assert unguarded_warning(fine) is None
