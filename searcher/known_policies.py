"""Policies as all runs so far show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from syncswitch.searcher.selection import Selection, chosen_policy
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import Said
from syncswitch.storage.policies.registry import PolicyEntry
from syncswitch.storage.uses.store import uses_of
from syncswitch.storage.uses.summary import UseSummary


def look_up(
    database: Database, selection: Selection, tell: Callable[[Said], None]
) -> tuple[PolicyEntry, UseSummary]:
    """The policy that is meant, as it is known now, and how its uses went.

    Raises PolicyError if there is none.
    """
    entry = chosen_policy(database, selection, tell, may_guess=True)
    uses = uses_of(database, entry.policy)
    return as_known_now(database, entry, uses), uses


def as_known_now(database: Database, entry: PolicyEntry, uses: UseSummary) -> PolicyEntry:
    """The policy with what its uses show where runs failed, so that it agrees with them."""
    is_no_target = uses.uses and uses.kept is None and entry.policy.target_accuracy is not None
    if not (uses.alarms or uses.collapsed or is_no_target or uses.kept not in (None, uses.uses)):
        return entry
    # NumPy takes a while to import.
    from syncswitch.searcher.learning.reading import as_known_now

    return replace(entry, policy=as_known_now(database, entry.policy))
