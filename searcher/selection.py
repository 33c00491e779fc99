"""Which job or policy a user means, where several clusters have trained workloads of one name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from syncswitch.storage.errors import PolicyError, UserError
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.protocols import parse_named_pair

if TYPE_CHECKING:
    from syncswitch.storage.policies.registry import PolicyRegistry
    from syncswitch.storage.records.job import RegisteredWorkload, WorkloadIdentity
    from syncswitch.storage.records.policy import TimingPolicy

_T = TypeVar("_T")
ClusterKind = Literal["real", "simulated"]

HOW_TO_CHOOSE = "choose with --workers, --protocols, --cluster or the fingerprint"


@dataclass(frozen=True)
class Selection:
    """A workload as the user typed it, with the options that narrow it down.

    Attributes:
        reference: Name, `file.py:attribute`, `package.module:attribute`, or 8 or more digits of the
            fingerprint.
        workers: Only jobs on this many workers; None for any number.
        protocols: Only jobs with these, as `FIRST,SECOND`; None for any.
        cluster: Only jobs on a real or on a simulated cluster. None for both: then real jobs come
            before simulated ones of the same name.
        choice: The version or alias of the policy.
    """

    reference: str
    workers: int | None = None
    protocols: str | None = None
    cluster: ClusterKind | None = None
    choice: str = "current"

    def __post_init__(self) -> None:
        """Raises UserError where `protocols` names no pair of protocols."""
        _ = self.pair

    @property
    def pair(self) -> tuple[str, str] | None:
        """The protocols, before and after the switch."""
        return None if self.protocols is None else parse_named_pair(self.protocols)

    @property
    def selector(self) -> str:
        """The name by which the database knows the workload."""
        return normal_reference(self.reference)

    @property
    def words(self) -> list[str]:
        """The workload and its options, for the command line of a search."""
        words = [self.reference]
        if self.workers is not None:
            words += ["--workers", str(self.workers)]
        if self.protocols is not None:
            words += ["--protocols", self.protocols]
        return words

    def fits(self, job: WorkloadIdentity) -> bool:
        """Whether the options allow a job of this name."""
        return (
            self.workers in (None, job.workers)
            and self.pair in (None, (job.first_protocol, job.second_protocol))
            and self.cluster in (None, cluster_kind(job))
        )


def cluster_kind(job: WorkloadIdentity) -> ClusterKind:
    """Whether a job is trained on a real cluster or on a simulated one."""
    return "real" if job.simulated_cluster is None else "simulated"


def real_first(
    found: Sequence[_T], job_of: Callable[[_T], WorkloadIdentity]
) -> tuple[list[_T], list[_T]]:
    """Splits what fits into what is meant and the rest: simulated jobs give way to real ones."""
    real = [one for one in found if cluster_kind(job_of(one)) == "real"]
    if not real:
        return list(found), []
    return real, [one for one in found if one not in real]


def only_job(
    known: Sequence[RegisteredWorkload], selection: Selection, place: str
) -> tuple[RegisteredWorkload, list[RegisteredWorkload]]:
    """The one job that is meant, and the simulated ones of its name that it was preferred to.

    `known` are the jobs that the reference names, `place` is the database, for messages. Raises
    UserError if there is none, or there are several.
    """
    meant, others = real_first([one for one in known if selection.fits(one.identity)], _identity)
    if len(meant) == 1:
        return meant[0], others
    reference = selection.reference
    if meant:
        raise UserError(
            f"{reference!r} names {len(meant)} jobs: {named_jobs(map(_identity, meant))};"
            f" {HOW_TO_CHOOSE}"
        )
    if known:
        raise UserError(
            f"{reference!r} has no runs on such a cluster; there is:"
            f" {named_jobs(map(_identity, known))}; choose one of them, or leave out --workers,"
            " --protocols and --cluster"
        )
    raise UserError(
        f"no workload {reference!r} in {place}; see: syncswitch-search trials, or find its policy"
        f" with: syncswitch-search run {reference}"
    )


def named_jobs(jobs: Iterable[WorkloadIdentity]) -> str:
    """Jobs of one workload, told apart by cluster and fingerprint."""
    return "; ".join(f"{job.cluster} [{job.fingerprint[:12]}]" for job in jobs)


def split_choice(text: str) -> tuple[str, str | None]:
    """Splits `WORKLOAD@CHOICE` into the workload and the version or alias; None where it has none.

    A folder may have an @ in its name, too, so only what can be a version or an alias counts.
    """
    workload, _, choice = text.rpartition("@")
    is_named = workload and choice and not set(choice) & set("/\\:")
    return (workload, choice) if is_named else (text, None)


def policies(registry: PolicyRegistry, selection: Selection) -> list[TimingPolicy]:
    """The policies that fit, one per fingerprint, newest first."""
    found = registry.choose(selection.selector, selection.choice)
    return [policy for policy in found if selection.fits(job_of(registry, policy))]


def preferred_policy(
    registry: PolicyRegistry,
    found: Sequence[TimingPolicy],
    tell: Callable[[str], None],
    *,
    may_guess: bool = False,
    how_to_choose: str = HOW_TO_CHOOSE,
) -> TimingPolicy:
    """The policy that is meant, of at least one, newest first; people are told where others fit.

    Where several are meant, the newest will do for a look (`may_guess`). For what is going to be
    used it would be a guess: then it raises a PolicyError, with `how_to_choose`.
    """

    def job(policy: TimingPolicy) -> WorkloadIdentity:
        return job_of(registry, policy)

    meant, others = real_first(found, job)
    if len(meant) > 1 and not may_guess:
        raise PolicyError(
            f"{len(meant)} policies of {meant[0].workload!r} fit: {named_jobs(map(job, meant))};"
            f" {how_to_choose}"
        )
    chosen, others = meant[0], meant[1:] + others
    if others:
        which = "the newest" if chosen is found[0] else "the newest real one"
        if len(meant) == 1:
            which = "the real one"
        tell(
            f"{which} of {len(found)}, for {job(chosen).cluster}; others:"
            f" {named_jobs(map(job, others))}; {how_to_choose}"
        )
    return chosen


def job_of(registry: PolicyRegistry, policy: TimingPolicy) -> WorkloadIdentity:
    """The job that a policy was found for."""
    workload = registry.workload(policy.fingerprint)
    assert workload is not None  # every policy refers to one
    return workload.identity


def _identity(registered: RegisteredWorkload) -> WorkloadIdentity:
    return registered.identity
