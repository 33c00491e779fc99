"""What a policy says of its use without a guard."""

from __future__ import annotations

from dataclasses import replace

from tests.storage.conftest import POLICY


def test_a_policy_for_guarded_trainings_warns_of_the_bare_switch() -> None:
    guarded = replace(POLICY, guarded=True, kept_share=0.86)
    assert guarded.bare_warning == (
        "this policy was found for guarded trainings: with the bare switch about 86 of 100 runs"
        " keep the accuracy; for a careful one, search with: syncswitch-search run --no-guard"
    )
    unknown = replace(guarded, kept_share=None).bare_warning
    assert unknown is not None
    assert "with the bare switch fewer runs keep the accuracy" in unknown
    for fine in (POLICY, replace(guarded, switch_percent=100.0)):
        assert fine.bare_warning is None
