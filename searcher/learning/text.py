"""What the uses of a policy ask for, in sentences; pure."""

from __future__ import annotations

from syncswitch.searcher.learning.revision import Revision
from syncswitch.searcher.text.values import counted
from syncswitch.storage.records.policy import TimingPolicy


def why_left(policy: TimingPolicy, revision: Revision) -> str:
    """Why a version was left, as a clause; a policy keeps it."""
    return (
        f"{revision.failed} of {counted(revision.uses, 'run')} with version {policy.version}"
        f" ({revision.switch_percent:g} %) did not keep the accuracy"
    )


def proposal_text(policy: TimingPolicy, revision: Revision) -> str:
    """What the uses of a version say, and what is better; a sentence without its full stop."""
    answer = revision.answer
    later = "a later switch" if answer.switch_percent < 100 else policy.first_protocol.upper()
    likely = "" if answer.confidence is None else f", good with {100 * answer.confidence:.0f} %"
    at = f"at {answer.switch_percent:g} %{likely}" if answer.switch_percent < 100 else "alone"
    return (
        f"{why_left(policy, revision)}: it is good with a probability of"
        f" {100 * revision.good_probability:.0f} %; better is {later} {at}"
    )
