"""The home of what runs with a policy measure: the database, or a file where it waits for one."""

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
    """Whether a policy is named by its file, which need not exist, rather than by a database."""
    return choice.endswith(".json") or Path(choice).is_file()


class UsesHome:
    """The place where the uses of a policy go."""

    def __init__(self, storage_url: str, choice: str, model: Path, tell: Tell) -> None:
        from syncswitch.storage.uses.waiting import spool_beside

        beside_model = spool_beside(model)
        beside_policy = [spool_beside(Path(choice))] if is_policy_file(choice) else []
        self._url, self._tell = storage_url, tell
        self._spools = tuple(dict.fromkeys([*beside_policy, beside_model]))

    def record(self, policy: TimingPolicy | None, use_id: str, record: TrialRecord) -> None:
        """Records a finished run as a use of its policy, and takes in those that wait.

        It raises nothing that a run could fail for, but tells people.
        """
        from syncswitch.storage.records.use import whole_use

        use = None if policy is None else whole_use(policy, use_id, record)
        if use is None:
            return
        reason = self._why_not_recorded(use)
        if reason is not None:
            self._spool(use, reason)

    def _why_not_recorded(self, use: PolicyUse) -> str | None:
        """Records the use, and those that wait; gives the reason where it cannot."""
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
    """The band that a run is compared with: the policy's, with what later runs have shown."""
    from syncswitch.searcher.learning import uses as learning

    return asked(lambda: learning.band(storage_url, policy), storage_url, policy.band, tell)


def own_seed(storage_url: str, identity: WorkloadIdentity, reference: str | None = None) -> int:
    """A seed that no other run of the job has; a random one where no database hands it out.

    `reference` registers the job in the database; None to hand out seeds of known jobs alone.
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
    """Recorded training times of the job with its first protocol alone, in seconds.

    Only undisturbed runs on this machine count, unless the clock was virtual. Empty where the
    database has none or cannot be read: no run fails for a report.
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
    """Warns where a run without a guard uses a policy that was found for guarded runs."""
    warning = policy.bare_warning if policy is not None and band is None else None
    if warning is not None:
        tell(warning)


def first_policy(
    identity: WorkloadIdentity,
    reference: str,
    record: TrialRecord,
    storage_url: str,
    tell: Tell,
    begins_from: TimingPolicy | None = None,
) -> TimingPolicy | None:
    """Publishes the first run of a job that learns; None where it diverged or cannot be kept."""
    from syncswitch.searcher.learning import uses as learning

    try:
        return learning.first_policy(storage_url, identity, reference, record, begins_from)
    except Exception as error:
        tell(f"error: this run teaches nothing: {reason_of(error)}")
        return None


def run_text(identity: WorkloadIdentity, seed: int, percent: float, planned: NextRun) -> str:
    """A line on how a run that learns trains."""
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
    """Tells people what the use that was just recorded teaches; a run never fails for it."""
    from syncswitch.searcher.learning import uses as learning

    if policy is not None:
        nothing: list[str] = []
        for line in asked(
            lambda: learning.after_use(storage_url, policy, expected_uses, goes_back),
            storage_url,
            nothing,
            tell,
        ):
            tell(line)


def asked(question: Callable[[], _T], storage_url: str, otherwise: _T, tell: Tell) -> _T:
    """The answer of a database, or the other one where none can be had; no run fails for it."""
    from syncswitch.storage.database.inspection import holds_nothing

    try:
        return otherwise if holds_nothing(storage_url) else question()
    except Exception as error:
        tell(reason_of(error))
        return otherwise
