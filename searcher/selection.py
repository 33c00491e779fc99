"""Which job or policy a user means, where several clusters have trained workloads of one name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from syncswitch.searcher.words import momentum_text
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import shown
from syncswitch.storage.errors import (
    Command,
    CommandHint,
    OptionHint,
    Part,
    PolicyError,
    Said,
    UserError,
    leave_out,
)
from syncswitch.storage.policies.file import read_policy_file
from syncswitch.storage.policies.registry import CURRENT, PolicyEntry, PolicyRegistry, current_ones
from syncswitch.storage.records.job import Job, Protocols, RegisteredWorkload
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.protocols import parse_named_pair

_Known = TypeVar("_Known", PolicyEntry, RegisteredWorkload)
ClusterKind = Literal["real", "simulated"]

_HOW_TO_CHOOSE = (
    OptionHint("workers", verb="choose with"),
    OptionHint("protocols", verb=""),
    OptionHint("cluster", verb=""),
    "the fingerprint",
)
_HOW_TO_NAME = (
    "give a policy file (.json)",
    "WORKLOAD or FINGERPRINT with @VERSION or @ALIAS where it is not the current one",
    CommandHint(Command.LIST_POLICIES),
)


@dataclass(frozen=True)
class Selection:
    """A workload as the user typed it, with the options that narrow it down.

    Attributes:
        reference: Name, `file.py:attribute`, `package.module:attribute`, or 8 or more digits of the
            fingerprint.
        protocols: Only jobs with these, as `FIRST,SECOND`.
        cluster: Only jobs on a real cluster, on a simulated one, or on the simulated one with this
            fingerprint. None for all: then real jobs come before simulated ones of the same name.
        choice: The version, alias or file of the policy.
        search_options: Further options of a search for such a job, for messages.
    """

    reference: str
    workers: int | None = None
    protocols: str | None = None
    cluster: str | None = None
    choice: str = CURRENT
    search_options: tuple[OptionHint, ...] = ()

    def __post_init__(self) -> None:
        """Raises UserError where `protocols` names no pair of protocols."""
        _ = self.pair

    @property
    def pair(self) -> tuple[str, str] | None:
        return None if self.protocols is None else parse_named_pair(self.protocols)

    @property
    def selector(self) -> str:
        """The name by which the database knows the workload."""
        return normal_reference(self.reference)

    @property
    def options(self) -> list[OptionHint]:
        narrowing = {"workers": self.workers, "protocols": self.protocols}
        given = [OptionHint(name, value) for name, value in narrowing.items() if value is not None]
        return [*self.search_options, *given]

    @property
    def search(self) -> CommandHint:
        return CommandHint(Command.SEARCH, (self.reference, *self.options), "find one with:")

    def fits(self, job: Job) -> bool:
        clusters = (None, job.simulated_cluster, _kind(job))
        return self.workers in (None, job.workers) and self.cluster in clusters

    def has_pair(self, protocols: Protocols) -> bool:
        return self.pair in (None, (protocols.first_protocol, protocols.second_protocol))

    def fitting(self, entries: Iterable[PolicyEntry]) -> list[PolicyEntry]:
        """Those of the policies that are for such a job and have these protocols."""
        return [
            entry
            for entry in entries
            if self.fits(entry.job) and self.has_pair(entry.policy.protocols)
        ]

    def matching(self, entries: Sequence[PolicyEntry]) -> list[PolicyEntry]:
        """Those of the policies that fit and have the version or alias."""
        if self.choice == CURRENT and self.pair is not None:
            return self.fitting(current_ones(entries))
        return [
            entry
            for entry in self.fitting(entries)
            if self.choice in (str(entry.policy.version), *entry.aliases)
        ]


def _kind(job: Job) -> ClusterKind:
    return "real" if job.simulated_cluster is None else "simulated"


def _real_first(fitting: Sequence[_Known]) -> tuple[list[_Known], list[_Known]]:
    """Splits what fits into what is meant and the rest: simulated jobs give way to real ones."""
    real = [one for one in fitting if _kind(one.job) == "real"]
    return (real, [one for one in fitting if one not in real]) if real else (list(fitting), [])


def only_job(
    jobs: Sequence[RegisteredWorkload], selection: Selection, place: str
) -> tuple[RegisteredWorkload, list[RegisteredWorkload]]:
    """The job that is meant, and the simulated ones of its name that it was preferred to.

    Raises UserError if of the `jobs` that the reference names none fits, or several do. `place` is
    the database, for messages.
    """
    meant, others = _real_first([one for one in jobs if selection.fits(one.job)])
    if len(meant) == 1:
        return meant[0], others
    reference = selection.reference
    if meant:
        raise UserError(
            f"{reference!r} names {len(meant)} jobs: {named_jobs(one.job for one in meant)}",
            remedy=_HOW_TO_CHOOSE,
            code="ambiguous",
        )
    if jobs:
        raise UserError(
            f"{reference!r} has no runs on such a cluster; there is:"
            f" {named_jobs(one.job for one in jobs)}",
            remedy=("choose one of them", *map(leave_out, ("workers", "cluster"))),
            code="nothing-recorded",
        )
    raise UserError(
        f"no workload {reference!r} in {place}",
        remedy=(
            CommandHint(Command.LIST_TRIALS),
            CommandHint(Command.SEARCH, (reference,), "find its policy with:"),
        ),
        code="nothing-recorded",
    )


def named_jobs(jobs: Iterable[Job]) -> str:
    """Jobs of one workload, told apart by cluster and fingerprint."""
    return "; ".join(f"{job.size} [{job.fingerprint[:12]}]" for job in jobs)


def _named_policies(entries: Iterable[PolicyEntry], beside: Iterable[PolicyEntry] = ()) -> str:
    """Policies of jobs of one workload, told apart by cluster, protocols and fingerprint.

    Where they differ in the momentum after the switch, or from those that they are named `beside`,
    they are told apart by that, too.
    """
    named = list(entries)
    rules = {entry.policy.protocols.momentum_after_switch for entry in (*named, *beside)}

    def described(entry: PolicyEntry) -> str:
        rule = momentum_text(entry.policy.protocols.momentum_after_switch)
        more = f", {rule}" if len(rules) > 1 and rule else ""
        return f"{entry.identity.cluster}{more} [{entry.identity.fingerprint[:12]}]"

    return "; ".join(map(described, named))


def split_choice(text: str) -> tuple[str, str | None]:
    """Splits `WORKLOAD@CHOICE` into the workload and the version or alias; None where it has none.

    A folder may have an @ in its name, too, so only what can be a version or an alias counts.
    """
    workload, _, choice = text.rpartition("@")
    is_named = workload and choice and not set(choice) & set("/\\:")
    return (workload, choice) if is_named else (text, None)


def is_policy_file(choice: str) -> bool:
    """Whether a policy is named by its file, which need not exist, rather than by a database."""
    return choice.endswith(".json") or Path(choice).is_file()


def filed_policy(path: str) -> PolicyEntry:
    """The policy of a file, with its job; its alias is the path. Raises PolicyError if altered."""
    content = read_policy_file(path)
    return PolicyEntry(content.policy, (path,), None, content.workload.job)


def known_policies(selection: Selection, storage_url: str) -> list[PolicyEntry]:
    """All policies of the workload, newest first; that of the file where one is chosen."""
    if is_policy_file(selection.choice):
        return [filed_policy(selection.choice)]
    with open_database(storage_url, create=False) as database:
        return PolicyRegistry(database).entries(workload=selection.selector)


def none_found(
    entries: Iterable[PolicyEntry],
    selection: Selection,
    storage_url: str,
    what_to_do: Sequence[Part] = (),
) -> PolicyError:
    """The error where none of the known policies of a workload is meant."""
    reference, choice, entries = selection.reference, selection.choice, list(entries)
    if fitting := selection.fitting(entries):
        versions = sorted({entry.policy.version for entry in fitting})
        aliases = sorted({alias for entry in fitting for alias in entry.aliases})
        names = ", ".join([*map(str, versions), *aliases])
        message = f"{reference!r} has no policy {choice!r}; its versions and aliases are: {names}"
        return PolicyError(message, remedy=what_to_do, code="policy-not-found")
    options: list[Part] = [" with"] if selection.options else []
    for option in selection.options:
        options += [" ", replace(option, verb="")]
    clusters = "; ".join(dict.fromkeys(entry.identity.cluster for entry in entries))
    there = f" (there is one for {clusters})" if clusters else ""
    place = choice if is_policy_file(choice) else shown(storage_url)
    return PolicyError(
        (f"no policy for {reference!r}", *options, f" in {place}{there}"),
        remedy=what_to_do or selection.search,
        code="policy-not-found",
    )


def chosen_policy(
    database: Database,
    selection: Selection,
    tell: Callable[[Said], None],
    *,
    may_guess: bool = False,
    how_to_choose: Part | Sequence[Part] = _HOW_TO_CHOOSE,
    how_to_name: Sequence[Part] = (),
) -> PolicyEntry:
    """The policy that is meant; people are told where others fit, too.

    Where several are meant, the newest will do for a look (`may_guess`); for what is going to be
    used it would be a guess. Raises PolicyError if there is none, or there are several.
    """
    entries = PolicyRegistry(database).entries(workload=selection.selector)
    fitting = selection.matching(entries)
    if not fitting:
        raise none_found(entries, selection, database.url, how_to_name)
    meant, others = _real_first(fitting)
    if len(meant) > 1 and not may_guess:
        raise PolicyError(
            f"{len(meant)} policies of {meant[0].policy.job.workload!r} fit:"
            f" {_named_policies(meant)}",
            remedy=how_to_choose,
            code="ambiguous",
        )
    chosen, others = meant[0], meant[1:] + others
    if others:
        which = "the newest" if chosen is fitting[0] else "the newest real one"
        if len(meant) == 1:
            which = "the real one"
        beside = _named_policies(others, [chosen])
        what = f"this is {which} of {len(fitting)} policies, for {chosen.identity.cluster}"
        tell(UserError(f"{what}; others: {beside}", remedy=how_to_choose))
    return chosen


def policy_named(text: str, storage_url: str, tell: Callable[[Said], None]) -> TimingPolicy:
    """The policy of a file, or of `WORKLOAD[@VERSION|@ALIAS]` in the database.

    Raises PolicyError if there is none, there are several, or the file was altered.
    """
    if is_policy_file(text):
        return filed_policy(text).policy
    workload, choice = split_choice(text)
    with open_database(storage_url, create=False) as database:
        return chosen_policy(
            database,
            Selection(workload, choice=choice or CURRENT),
            tell,
            how_to_choose="choose with the fingerprint: FINGERPRINT[@VERSION]",
            how_to_name=_HOW_TO_NAME,
        ).policy
