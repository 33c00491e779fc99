"""A warning for those who use a policy without the guard that it was found for."""

from __future__ import annotations

from syncswitch.storage.errors import Command, CommandHint, OptionHint, UserError
from syncswitch.storage.records.policy import TimingPolicy


def unguarded_warning(policy: TimingPolicy) -> UserError | None:
    """Returns a warning against the switch of a policy without a guard; None if it needs none."""
    if not policy.is_for_guard:
        return None
    share = "fewer runs"
    if policy.promise.kept_share is not None:
        share = f"about {100 * policy.promise.kept_share:.0f} of 100 runs"
    return UserError(
        f"this policy was found for guarded runs: without a guard {share} keep the accuracy",
        remedy=CommandHint(
            Command.SEARCH, ("WORKLOAD", OptionHint("guarded", False)), "for a careful one, run:"
        ),
        code="policy-unfit",
    )
