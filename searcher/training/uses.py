"""What a run with a policy teaches: it goes into the database, or waits in a file for one.

What is learnt of it, the searcher says.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from syncswitch.storage.errors import SyncSwitchError, reason_of
from syncswitch.storage.records.job import LARGEST_SEED
from syncswitch.storage.records.trial import BASELINE_PERCENT

if TYPE_CHECKING:
    from syncswitch.storage.database.engine import Database
    from syncswitch.storage.records.guard import Band
    from syncswitch.storage.records.job import WorkloadIdentity
    from syncswitch.storage.records.policy import TimingPolicy
    from syncswitch.storage.records.trial import TrialRecord
    from syncswitch.storage.records.use import NextRun, PolicyUse

_T = TypeVar("_T")
Tell = Callable[[str], None]
"""Shows people a line."""

_PATIENCE_SECONDS = 10.0
"""How long a run that is done waits for a database: what it measured is safe in a file."""


def is_policy_file(choice: str) -> bool:
    """Whether a policy is named by its file, which need not be there, or by what a database has."""
    return choice.endswith(".json") or Path(choice).is_file()


class UsesHome:
    """Where the uses of a policy go.

    Args:
        storage_url: The database; it need not be there.
        choice: A policy file, or a version or alias in the database.
        model: Where the model is saved; uses wait beside it where there is no other place.
        tell: Shows people what became of the uses.
    """

    def __init__(self, storage_url: str, choice: str, model: Path, tell: Tell) -> None:
        from syncswitch.storage.uses.waiting import spool_beside

        beside_model = spool_beside(model)
        beside_policy = [spool_beside(Path(choice))] if is_policy_file(choice) else []
        self._url, self._tell = storage_url, tell
        self._spools = tuple(dict.fromkeys([*beside_policy, beside_model]))

    def record(self, policy: TimingPolicy | None, use_id: str, record: TrialRecord) -> None:
        """Keeps a run that is over as a use of its policy, and takes in those that wait.

        Raises nothing that a run could fail for: a word goes to standard error instead.

        Args:
            policy: That it trained with; None for a switch point of the user's own.
            use_id: Drawn before it began.
            record: What it measured.
        """
        from syncswitch.storage.records.use import whole_use

        use = None if policy is None else whole_use(policy, use_id, record)
        if use is None:
            return
        reason = self._why_not_recorded(use)
        if reason is not None:
            self._spool(use, reason)

    def _why_not_recorded(self, use: PolicyUse) -> str | None:
        """Records the use, and those that wait; where it cannot, gives the reason."""
        from syncswitch.storage.database.engine import open_database
        from syncswitch.storage.database.inspection import holds_nothing, shown
        from syncswitch.storage.uses.store import record_use

        try:
            if holds_nothing(self._url):
                return f"there is no database {shown(self._url)}"
            with open_database(self._url, create=False) as database:
                record_use(database, use, patience_seconds=_PATIENCE_SECONDS)
                self._take_in(database)
        except Exception as error:
            return reason_of(error)
        return None

    def _take_in(self, database: Database) -> None:
        from syncswitch.storage.uses.spool import take_in

        for path in self._spools:
            try:
                taken = take_in(database, path, patience_seconds=_PATIENCE_SECONDS)
            except Exception as error:
                self._tell(f"earlier runs stay in {path}: {reason_of(error)}")
                continue
            if taken.recorded:
                self._tell(f"earlier runs taken in from {path}: {taken.recorded}")
            for words in (taken.kept, taken.set_aside):
                if words:
                    others = f" (and {len(words) - 1} more such lines)" if words[1:] else ""
                    self._tell(f"{words[0]}{others}")

    def _spool(self, use: PolicyUse, reason: str) -> None:
        from syncswitch.storage.uses.waiting import spool_use

        for path in self._spools:
            try:
                spool_use(path, use)
            except Exception as error:
                reason = f"{reason}; {reason_of(error)}"
                continue
            self._tell(
                f"this run waits in {path} to be counted ({reason}); a later run that reaches the"
                f" database takes it in, and so does: syncswitch-search uses import {path}"
            )
            return
        self._tell(f"error: this run cannot be counted as a use of its policy: {reason}")


def known_band(policy: TimingPolicy, storage_url: str, tell: Tell) -> Band | None:
    """What a run is held against: the policy's band, with what later runs have shown."""

    def ask() -> Band | None:
        from syncswitch.searcher.learning import uses as learning

        return learning.band(storage_url, policy)

    return _asked(ask, storage_url, policy.band, tell)


def own_seed(storage_url: str, identity: WorkloadIdentity, reference: str | None = None) -> int:
    """A seed that no other run of the job has; drawn at random where no database hands it out.

    Args:
        storage_url: The database; it need not be there.
        identity: The job.
        reference: Makes the job known there; None where only a job that is known gets a seed.
    """
    from syncswitch.storage.database.engine import open_database
    from syncswitch.storage.database.inspection import holds_nothing
    from syncswitch.storage.uses.store import hand_out_seed

    seed = None
    with suppress(Exception):  # whatever it is, no run may fail for it
        if not holds_nothing(storage_url):
            with open_database(storage_url, create=False) as database:
                seed = hand_out_seed(
                    database, identity, reference, patience_seconds=_PATIENCE_SECONDS
                )
    return secrets.randbelow(LARGEST_SEED + 1) if seed is None else seed


def recorded_alone(storage_url: str, identity: WorkloadIdentity) -> list[float]:
    """Training times of the job with its first protocol alone that are on record, in seconds.

    Only undisturbed runs on this machine count, unless the clock was virtual. Empty where the
    database has none, or cannot be read: a report is never worth a run.
    """
    from syncswitch.storage.database.engine import open_database
    from syncswitch.storage.trials.store import TrialStore

    host = None if identity.simulated_cluster else socket.gethostname()
    try:
        with open_database(storage_url, create=False) as database:
            return TrialStore(database).times_alone(identity.fingerprint, host)
    except SyncSwitchError:
        return []


def note_bare_use(policy: TimingPolicy | None, band: Band | None, tell: Tell) -> None:
    """Says so where a run without a guard uses a policy that was found for guarded ones."""
    warning = policy.bare_warning if policy is not None and band is None else None
    if warning is not None:
        tell(warning)


def next_run(
    identity: WorkloadIdentity, storage_url: str, uses: int, *, goes_back: bool | None = None
) -> NextRun:
    """Where the next training of a job switches that is learnt from its trainings."""
    from syncswitch.searcher.learning import uses as learning

    return learning.next_run(storage_url, identity, uses, goes_back)


def planned_use(policy: TimingPolicy, storage_url: str, uses: int, tell: Tell) -> NextRun | None:
    """What the next run with the current policy of a database may try; None where it keeps to it.

    Args:
        policy: The policy.
        storage_url: The database.
        uses: How often the job is trained in all.
        tell: Shows people why nobody could be asked.
    """

    def ask() -> NextRun | None:
        from syncswitch.searcher.learning import uses as learning

        return learning.next_use(storage_url, policy, uses)

    return _asked(ask, storage_url, None, tell) if policy.guarded else None


def first_policy(
    identity: WorkloadIdentity,
    reference: str,
    record: TrialRecord,
    storage_url: str,
    tell: Tell,
    begins_from: TimingPolicy | None = None,
) -> TimingPolicy | None:
    """What the first run of such a job is kept as; None where it diverged or cannot be kept."""
    from syncswitch.searcher.learning import uses as learning

    try:
        return learning.first_policy(storage_url, identity, reference, record, begins_from)
    except Exception as error:
        tell(f"error: this run teaches nothing: {reason_of(error)}")
        return None


def run_text(identity: WorkloadIdentity, seed: int, percent: float, planned: NextRun) -> str:
    """How a run of a job that is learnt from its runs trains."""
    first, second = identity.first_protocol.upper(), identity.second_protocol.upper()
    begin, is_switch = f"this run, with seed {seed},", percent < BASELINE_PERCENT
    policy = planned.policy
    if planned.begins_from is not None:
        found = planned.begins_from
        how = f"switches to {second} at {percent:g} %, guarded" if is_switch else f"uses {first}"
        return (
            f"{begin} begins from what simulated runs found (version {found.version} for"
            f" {found.workers} simulated workers): it {how}; from then on only runs on this cluster"
            " decide"
        )
    if policy is None or percent == policy.switch_percent:
        how = f"switches to {second} at {percent:g} %" if is_switch else f"uses {first} alone"
        return f"{begin} {how}"
    how = f"a switch to {second} at {percent:g} %" if is_switch else f"{first} alone"
    return (
        f"{begin} tries {how}, as that may save later runs more time than it costs; policy version"
        f" {policy.version} says {policy.switch_percent:g} %, and --no-learn keeps to it"
    )


def after_use(
    policy: TimingPolicy | None,
    storage_url: str,
    tell: Tell,
    expected_uses: int | None = None,
    *,
    goes_back: bool | None = None,
) -> None:
    """Says what the use that was just recorded teaches; a run never fails for it.

    Args:
        policy: The policy that the run trained with; None for a switch point of the user's own.
        storage_url: The database, which has the use.
        tell: Shows people what it teaches.
        expected_uses: How often the job is trained in all, by runs that learn; None where they keep
            to the policy.
        goes_back: Whether a run of this job that failed goes back to its switch; None where only
            the database knows.
    """
    if policy is None:
        return

    def ask() -> list[str]:
        from syncswitch.searcher.learning import uses as learning

        return learning.after_use(storage_url, policy, expected_uses, goes_back)

    no_words: list[str] = []
    for word in _asked(ask, storage_url, no_words, tell):
        tell(word)


def _asked(ask: Callable[[], _T], storage_url: str, otherwise: _T, tell: Tell) -> _T:
    """The answer, or the other one without a database; a run never fails for it."""
    from syncswitch.storage.database.inspection import holds_nothing

    try:
        return otherwise if holds_nothing(storage_url) else ask()
    except Exception as error:
        tell(reason_of(error))
        return otherwise
