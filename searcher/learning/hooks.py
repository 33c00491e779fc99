"""What `syncswitch-run` asks of the searcher, where that is installed: by entry points.

Its group is `syncswitch.uses`; the trainers know the names alone.
"""

from __future__ import annotations

import shlex

from syncswitch.searcher.learning.live import (
    publish_revision,
    revision_of,
    stored_version,
    used_job,
)
from syncswitch.searcher.learning.next_run import first_policy, next_run
from syncswitch.searcher.learning.text import proposal_text, why_left
from syncswitch.searcher.text.uses import drift_text
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.uses.store import use_curves, uses_of

__all__ = ["after_use", "band", "first_policy", "next_run"]


def band(storage_url: str, policy: TimingPolicy) -> Band | None:
    """What the next run with a policy is held against, by all that was measured since."""
    with open_database(storage_url, create=False) as database:
        stored = stored_version(database, policy)
        if stored is None:
            return policy.band
        return used_job(database, stored).band(use_curves(database, stored.fingerprint))


def after_use(storage_url: str, policy: TimingPolicy, *, revise: str) -> list[str]:
    """Asks after a policy when one more use is recorded.

    Args:
        storage_url: The database, which has the use.
        policy: That the run trained with.
        revise: `auto`: a later switch is published where the policy does not hold; `propose`: it is
            said what to type; `off`: only whether the job has changed.

    Returns:
        What people should know, a sentence each without its full stop.
    """
    with open_database(storage_url, create=False) as database:
        stored = stored_version(database, policy)
        if stored is None:
            return []
        drift = uses_of(database, stored).drift
        words = [] if drift is None else [drift_text(drift)]
        revision = revision_of(database, stored) if revise != "off" else None
        if revision is None:
            return words
        if revise == "auto":
            new = publish_revision(database, stored, revision)
            why = why_left(stored, revision)
            switch = f"a switch at {new.switch_percent:g} %"
            if new.switch_percent == 100:
                switch = f"{new.first_protocol.upper()} alone"
            return [*words, f"{why}: from now on version {new.version}, {switch}"]
    command = ["syncswitch-search", "policy", "revise", stored.workload]
    how = shlex.join([*command, "--workers", str(stored.workers)])
    return [*words, f"{proposal_text(stored, revision)}; publish it with: {how}"]
