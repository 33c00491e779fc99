"""What `syncswitch-run` asks of the searcher before and after a run."""

from __future__ import annotations

import shlex

from syncswitch.searcher.learning.stored import (
    first_policy,
    next_run,
    next_use,
    publish_revision,
    revision_of,
    stored_version,
    used_job,
)
from syncswitch.searcher.learning.used_job import Revision
from syncswitch.searcher.learning.words import drift_text
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.uses.store import use_curves, uses_of

__all__ = ["after_use", "band", "first_policy", "next_run", "next_use"]


def band(storage_url: str, policy: TimingPolicy) -> Band | None:
    """What the next run with a policy is held against, by all that was measured since."""
    with open_database(storage_url, create=False) as database:
        stored = stored_version(database, policy)
        if stored is None:
            return policy.band
        return used_job(database, stored).band(use_curves(database, stored.fingerprint))


def after_use(
    storage_url: str,
    policy: TimingPolicy,
    expected_uses: int | None = None,
    goes_back: bool | None = None,
) -> list[str]:
    """Asks after a policy when one more use is recorded.

    Args:
        storage_url: The database, which has the use.
        policy: The policy that the run trained with.
        expected_uses: How often the job is trained in all, by runs that learn: where another
            switch takes less time, they publish it, once nothing is left to try. None where runs
            keep to the policy: then it is said what to type.
        goes_back: See `used_job`.

    Returns:
        What people should know, a sentence each without its full stop.
    """
    with open_database(storage_url, create=False) as database:
        stored = stored_version(database, policy)
        if stored is None:
            return []
        drift = uses_of(database, stored).drift
        words = [] if drift is None else [drift_text(drift)]
        revision = revision_of(database, stored, expected_uses, goes_back)
        if revision is None:
            return words
        if expected_uses is None:
            return [*words, proposal_text(stored, revision)]
        new = publish_revision(database, stored, revision)
        return [*words, f"{revision.why}: from now on version {new.version}, {_switch(new)}"]


def proposal_text(policy: TimingPolicy, revision: Revision) -> str:
    """Why another switch is better, and how to publish it; a sentence without its full stop."""
    command = ["syncswitch-search", "policy", "revise", policy.workload]
    how = shlex.join([*command, "--workers", str(policy.workers)])
    return f"{revision.why}; publish it with: {how}"


def _switch(policy: TimingPolicy) -> str:
    if policy.switch_percent == 100:
        return f"{policy.first_protocol.upper()} alone"
    return f"a switch at {policy.switch_percent:g} %"
