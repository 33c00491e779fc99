"""Records runs with a policy: in the database, or in a file until one can be reached."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from syncswitch.searcher.learning.publishing import after_use
from syncswitch.searcher.learning.reading import band, band_alone
from syncswitch.searcher.selection import is_policy_file
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import holds_nothing, shown
from syncswitch.storage.errors import (
    Command,
    CommandHint,
    FatalError,
    Said,
    SyncSwitchError,
    UserError,
    one_line,
    reason_of,
)
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.goal import Goal
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import LARGEST_SEED, ScheduledJob
from syncswitch.storage.records.policy import PolicyUse, TimingPolicy, whole_use
from syncswitch.storage.records.trial import TrialRecord
from syncswitch.storage.trials.possible import check_use
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.uses.spool import spool_beside, spool_use, take_in
from syncswitch.storage.uses.store import hand_out_seed, record_use, uses
from syncswitch.storage.uses.summary import goal_of

_T = TypeVar("_T")
Tell = Callable[[Said], None]
"""Shows people a line."""

_PATIENCE_SECONDS = 10.0
"""How long a run that is done waits for a database: what it measured is safe in a file."""


class RunRecorder:
    """The database of a training, which need not be there: no run fails for it."""

    def __init__(self, storage_url: str, tell: Tell) -> None:
        self.url, self.tell = storage_url, tell

    def asked(
        self, question: Callable[[Database], _T], otherwise: _T, *, is_quiet: bool = False
    ) -> _T:
        """The answer of the database, or the other one where none can be had.

        It may be quiet of a database that does not answer, but of nothing unexpected.
        """
        try:
            if holds_nothing(self.url):
                return otherwise
            with open_database(self.url, create=False) as database:
                return question(database)
        except SyncSwitchError as error:
            if not is_quiet:
                self.tell(reason_of(error))
        except Exception as error:
            self.tell(f"what the database knows of this job is left out: {one_line(error)}")
        return otherwise

    def band(self, policy: TimingPolicy) -> Band | None:
        """The band that a run is compared with: the policy's, with what later runs have shown."""
        otherwise = band_alone(policy)
        return self.asked(lambda database: band(database, policy), otherwise)

    def goal(self, policy: TimingPolicy | None, band: Band | None) -> Goal | None:
        """What runs with a policy are held to, by all runs so far; else what one was held to."""
        if policy is None:
            return None
        last = goal_of(policy, ()) if band is None else band.goal

        def by_all(database: Database) -> Goal | None:
            return goal_of(policy, uses(database, policy.job.fingerprint, policy.protocols))

        return self.asked(by_all, last, is_quiet=True)

    def policy_of(self, identity: ScheduledJob) -> TimingPolicy | None:
        """The current policy of a job; None without one, or a database that says so."""

        def current(database: Database) -> TimingPolicy | None:
            registry = PolicyRegistry(database)
            return registry.current(identity.fingerprint, identity.protocols)

        return self.asked(current, None, is_quiet=True)

    def own_seed(self, identity: ScheduledJob, reference: str | None = None) -> int:
        """A seed that no other run of the job has; a random one where no database hands it out.

        `reference` registers the job in the database; None to hand out seeds of known jobs alone.
        """

        def handed_out(database: Database) -> int | None:
            return hand_out_seed(
                database, identity.job, reference, patience_seconds=_PATIENCE_SECONDS
            )

        seed = self.asked(handed_out, None, is_quiet=True)
        return secrets.randbelow(LARGEST_SEED + 1) if seed is None else seed

    def times_alone(self, identity: ScheduledJob) -> list[float]:
        """Recorded training times of the job with its first protocol alone, in seconds.

        Only undisturbed runs on this machine count, unless the clock was virtual.
        """
        host = None if identity.simulated_cluster else socket.gethostname()
        return self.asked(
            lambda database: TrialStore(database).times_alone(
                identity.fingerprint, identity.first_protocol, host
            ),
            list[float](),
            is_quiet=True,
        )

    def published(
        self, publish: Callable[[Database], TimingPolicy | None]
    ) -> tuple[TimingPolicy | None, Said | None]:
        """The policy that a first run publishes, and why there is none where it has to wait.

        It creates the database if need be.
        """
        try:
            with open_database(self.url, create=True) as database:
                return publish(database), None
        except FatalError as error:
            self._tell_refused(error)
        except Exception as error:
            return None, reason_of(error)
        return None, None

    def _tell_refused(self, error: FatalError) -> None:
        self.tell(UserError(("error: could not record this run: ", error)))

    def record(
        self,
        policy: TimingPolicy | None,
        use_id: str,
        record: TrialRecord,
        *,
        choice: str | None,
        model: Path,
        waits: Said | None = None,
    ) -> None:
        """Records a finished run as a use of its policy, and takes in those that wait.

        Without a database it waits beside the policy file that was chosen, else beside the model.
        `waits` is why it has to do so in any case.
        """
        use = None if policy is None else whole_use(policy, use_id, record)
        if use is None:
            return
        try:
            check_use(use)
        except FatalError as error:  # no database will ever take it
            self._tell_refused(error)
            return
        beside = [Path(choice)] if choice is not None and is_policy_file(choice) else []
        spools = list(dict.fromkeys(map(spool_beside, (*beside, model))))
        reason = self._recorded(use, spools) if waits is None else waits
        if reason is not None:
            self._spool(use, spools, reason)

    def _recorded(self, use: PolicyUse, spools: list[Path]) -> Said | None:
        """Records a use; returns why that is impossible now."""
        try:
            if holds_nothing(self.url):
                return f"there is no database {shown(self.url)}"
            with open_database(self.url, create=False) as database:
                record_use(database, use, patience_seconds=_PATIENCE_SECONDS)
                self._take_in(database, spools)
        except Exception as error:
            return reason_of(error)
        return None

    def _take_in(self, database: Database, spools: list[Path]) -> None:
        for path in spools:
            try:
                taken = take_in(database, path, patience_seconds=_PATIENCE_SECONDS)
            except Exception as error:
                self.tell(UserError((f"earlier runs stay in {path}: ", reason_of(error))))
                continue
            if taken.recorded:
                self.tell(f"earlier runs imported from {path}: {taken.recorded}")
            for words in (taken.kept, taken.set_aside):
                if words:
                    others = f" (and {len(words) - 1} more such lines)" if words[1:] else ""
                    self.tell(f"{words[0]}{others}")

    def _spool(self, use: PolicyUse, spools: list[Path], reason: Said) -> None:
        for path in spools:
            try:
                spool_use(path, use)
            except Exception as error:
                reason = UserError((reason, "; ", reason_of(error)))
                continue
            self.tell(
                UserError(
                    (f"this run waits in {path} to be recorded (", reason, ")"),
                    remedy=(
                        "a later run that reaches the database imports it",
                        CommandHint(Command.IMPORT_USES, (str(path),), "import it with:"),
                    ),
                )
            )
            return
        self.tell(UserError(("error: this run cannot be counted for its policy: ", reason)))

    def tell_lessons(
        self,
        policy: TimingPolicy | None,
        expected_runs: int | None = None,
        goes_back: bool | None = None,
    ) -> None:
        """Tells people what the use that was just recorded teaches; see `after_use`."""
        if policy is not None:
            for line in self.asked(
                lambda database: after_use(database, policy, expected_runs, goes_back), list[Said]()
            ):
                self.tell(line)
