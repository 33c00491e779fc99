"""Chooses what `syncswitch-run` trains and where it switches: by policy, by learning or as told."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from syncswitch.searcher.backends.base import USUAL_PROTOCOLS, USUAL_WORKERS, ClusterChoice
from syncswitch.searcher.selection import job_of, preferred_policy
from syncswitch.searcher.training.uses import (
    Tell,
    asked,
    is_policy_file,
    known_band,
    own_seed,
    run_text,
)
from syncswitch.storage.errors import PolicyError, SyncSwitchError, UserError
from syncswitch.storage.records.guard import later_switch_points
from syncswitch.trainers.job.loading import find_module, normal_reference
from syncswitch.trainers.protocols import check_protocols, parse_pair

if TYPE_CHECKING:
    from syncswitch.storage.policies.registry import PolicyRegistry
    from syncswitch.storage.records.guard import Band
    from syncswitch.storage.records.job import WorkloadIdentity
    from syncswitch.storage.records.policy import TimingPolicy
    from syncswitch.storage.records.use import NextRun
    from syncswitch.trainers.job.workload import Workload


_HOW_TO_NAME = (
    "give a policy file (.json), or WORKLOAD or FINGERPRINT with @VERSION or @ALIAS where it is not"
    " the current one; see: syncswitch-search policy list"
)


_Found = tuple["TimingPolicy", "WorkloadIdentity"]
"""A policy, and the job that it was found for."""


Interrupted = Callable[["Workload", float | None], tuple[int, float] | None]
"""Finds the run that goes on, for a workload and the percent where it must have switched.

None as the percent stands for any. It gives the seed and switch, or None where another run begins.
"""


@dataclass(frozen=True)
class Wanted:
    """A training as its user asked for it.

    None as `workers` or `pair` stands for those of the policy, as `seed` for that of the run that
    goes on, or one that no other run has. The database need not be there. `tell` shows people how
    the run trains.
    """

    cluster: ClusterChoice
    reference: str
    workers: int | None
    pair: tuple[str, str] | None
    seed: int | None
    storage_url: str
    interrupted: Interrupted
    tell: Tell

    @property
    def options(self) -> str:
        """The options of a search for such a job, each with a space before it."""
        words = self.cluster.search_options
        words += f" --workers {self.workers}" if self.workers else ""
        return words + (f" --protocols {','.join(self.pair)}" if self.pair else "")

    @property
    def job_text(self) -> str:
        """The cluster as far as the user has named it, for example `8 real workers, bsp,asp`."""
        kind = "real" if self.cluster.simulated_cluster is None else "simulated"
        noun = "worker" if self.workers == 1 else "workers"
        text = f"{self.workers or ''} {kind} {noun}".strip()
        text += f" of{options}" if (options := self.cluster.search_options) else ""
        return f"{text}, {','.join(self.pair)}" if self.pair else text

    def fitting(self, found: list[_Found]) -> list[_Found]:
        """The policies for as many workers and these protocols, on any kind of cluster."""
        return [
            (policy, job)
            for policy, job in found
            if self.workers in (None, job.workers)
            and self.pair in (None, (job.first_protocol, job.second_protocol))
        ]

    def of_cluster(self, found: list[_Found]) -> list[TimingPolicy]:
        """The policies of these that were found on this kind of cluster."""
        kind = self.cluster.simulated_cluster
        return [policy for policy, job in found if job.simulated_cluster == kind]


@dataclass(frozen=True)
class Chosen:
    """A run that is about to begin.

    It is a use of its `policy`, which is None for a switch point of the user's own, and for the
    first run of a job that is learnt from its runs. Without a `band` it has no guard. It `learns`
    if what it measures decides where later runs switch.
    """

    workload: Workload
    identity: WorkloadIdentity
    switch_percent: float
    seed: int
    policy: TimingPolicy | None = None
    band: Band | None = None
    retry_percents: tuple[float, ...] = ()
    learns: bool = False
    begins_from: TimingPolicy | None = None


def check_when(
    *,
    learns: bool,
    is_guarded: bool = True,
    choice: str | None = None,
    switch_percent: float | None = None,
    protocol: str | None = None,
    protocols: str | None = None,
) -> None:
    """Raises UserError where options contradict each other; None stands for one not given."""
    if learns and not is_guarded:
        raise UserError("--learn needs the guard: leave out --no-guard")
    if protocol is not None and protocols is not None:
        raise UserError("--protocol and --protocols both say what to use: leave out one of them")
    said = {
        "--learn": learns,
        "--switch-at": switch_percent is not None,
        "--protocol": protocol is not None,
        "--policy": choice is not None,
    }
    given = [option for option, is_said in said.items() if is_said]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} both say when to switch: leave out one of them")


def chosen_by_user(wanted: Wanted, switch_percent: float) -> Chosen:
    """A run at a switch point of the user's own; its usual seed is 0, to compare such runs."""
    workload, identity = _chosen_job(wanted)
    return Chosen(workload, identity, switch_percent, wanted.seed or 0)


def chosen_by_learning(wanted: Wanted, uses: int) -> Chosen:
    """The run that the runs so far call for; `uses` is how often the job is trained in all."""
    from syncswitch.searcher.learning.uses import next_run

    workload, identity = _chosen_job(wanted)
    planned = next_run(wanted.storage_url, identity, uses)
    return _learning(wanted, workload, identity, planned, normal_reference(wanted.reference))


def chosen_by_policy(
    wanted: Wanted, choice: str, *, is_guarded: bool, learnt_uses: int | None
) -> Chosen:
    """A run that switches where its policy says, or where learning wants to try.

    `learnt_uses` is how often the job is trained in all, by runs that may try other switch points;
    None where they keep to the policy.

    Raises:
        PolicyError: There is no policy for exactly this job.
    """
    from syncswitch.searcher.learning import uses as learning

    cluster = wanted.cluster
    if not is_guarded or cluster.simulated_cluster is not None:
        learnt_uses = None
    find_module(wanted.reference)
    found = named_policies(normal_reference(wanted.reference), choice, wanted.storage_url)
    if learnt_uses is not None and not wanted.of_cluster(wanted.fitting(found)):
        begun = _begun(wanted, found, learnt_uses)
        if begun is not None:
            return begun
    candidates = policies_of_cluster(wanted, choice, found)
    workload = cluster.load(wanted.reference, max(one.workers for one in candidates))
    policy, identity = _fitting_policy(wanted, candidates, workload, choice)
    planned: NextRun | None = None
    if learnt_uses is not None and policy.guarded:
        uses = learnt_uses
        planned = asked(
            lambda: learning.next_use(wanted.storage_url, policy, uses),
            wanted.storage_url,
            None,
            wanted.tell,
        )
    if planned is not None and planned.band is not None:
        return _learning(wanted, workload, identity, planned)
    band = known_band(policy, wanted.storage_url, wanted.tell) if is_guarded else None
    percent, seed = policy.switch_percent, wanted.seed
    retries = later_switch_points(percent) if band else ()
    if seed is None:
        goes_on = wanted.interrupted(workload, percent)
        seed = goes_on[0] if goes_on else own_seed(wanted.storage_url, identity)
        wanted.tell(f"this run has seed {seed}")
    return Chosen(workload, identity, percent, seed, policy, band, retries)


def _begun(wanted: Wanted, found: list[_Found], uses: int) -> Chosen | None:
    """The first real run of a job, from a policy of the same job on a simulated cluster."""
    from syncswitch.searcher.learning.uses import next_run

    for _, job in wanted.fitting(found):
        if job.simulated_cluster is None:
            continue
        workload = wanted.cluster.load(wanted.reference, job.workers)
        pair = (job.first_protocol, job.second_protocol)
        identity = wanted.cluster.identity(workload, job.workers, pair)
        if replace(job, simulated_cluster=None).fingerprint == identity.fingerprint:
            planned = next_run(wanted.storage_url, identity, uses)
            name = normal_reference(wanted.reference)
            return _learning(wanted, workload, identity, planned, name)
    return None


def _learning(
    wanted: Wanted,
    workload: Workload,
    identity: WorkloadIdentity,
    planned: NextRun,
    reference: str | None = None,
) -> Chosen:
    """A run that learns as it was planned, or the one that was interrupted.

    `reference` makes a job known to a database that does not know it yet.
    """
    goes_on = wanted.interrupted(workload, None)
    percent, seed = goes_on[1] if goes_on else planned.switch_percent, wanted.seed
    if seed is None:
        seed = goes_on[0] if goes_on else own_seed(wanted.storage_url, identity, reference)
    wanted.tell(run_text(identity, seed, percent, planned))
    return Chosen(
        workload,
        identity,
        percent,
        seed,
        planned.policy,
        planned.band,
        tuple(one for one in planned.retry_percents if one > percent),
        learns=True,
        begins_from=planned.begins_from,
    )


def _chosen_job(wanted: Wanted) -> tuple[Workload, WorkloadIdentity]:
    """The job of a run that follows no policy.

    Raises:
        UserError: No cluster of this size can run these protocols, or the job is too short for it.
    """
    workers, pair = size_and_pair(wanted)
    workload = wanted.cluster.load(wanted.reference, workers)
    check_protocols(pair, workers)
    identity = wanted.cluster.identity(workload, workers, pair)
    # It brings NumPy along, which looking up a policy does not need.
    from syncswitch.trainers.job.schedule import check_length

    check_length(identity)
    return workload, identity


def named_policies(name: str, choice: str, storage_url: str) -> list[_Found]:
    """The policies that a user may mean, on any cluster, newest first."""
    if is_policy_file(choice):
        from syncswitch.storage.policies.file import read_policy_file

        content = read_policy_file(choice)
        return [(content.policy, content.workload.identity)]
    from syncswitch.storage.database.engine import open_database
    from syncswitch.storage.policies.registry import PolicyRegistry

    with open_database(storage_url, create=False) as database:
        registry = PolicyRegistry(database)
        found = registry.choose(name, choice)
        return [(policy, job_of(registry, policy)) for policy in found]


def policies_of_cluster(wanted: Wanted, choice: str, found: list[_Found]) -> list[TimingPolicy]:
    """The policies of this kind of cluster among those found; at least one.

    Raises:
        PolicyError: There is none, or a real cluster has none but those of simulated ones.
    """
    fitting = wanted.fitting(found)
    if here := wanted.of_cluster(fitting):
        return here
    reference, options = wanted.reference, wanted.options
    search = f"syncswitch-search run {reference}{options}"
    if fitting and wanted.cluster.simulated_cluster is None:
        jobs = "; ".join(f"{policy.workload!r} on {job.cluster}" for policy, job in fitting)
        # Of several the newest; its name alone may mean any of them.
        newest = fitting[0][0]
        which = choice if is_policy_file(choice) else f"{newest.fingerprint[:12]}@{choice}"
        raise PolicyError(
            f"policy {choice!r} was found for a simulated job ({jobs}), not for the real"
            f" {reference!r}; a guarded run that learns begins from it, as long as the workload is"
            f" the same: leave out --policy, --no-learn and --no-guard; or try it on the real job"
            f" with: syncswitch-search sweep {shlex.join([reference, '--policy', which])}{options};"
            f" or search for the real job with: {search}"
        )
    have = "; ".join(job.cluster for _, job in found)
    if is_policy_file(choice):
        raise PolicyError(
            f"the policy in {choice} was found for {have}, and this run is on {wanted.job_text}:"
            f" train on what it was found for, or find a policy for this one with: {search}"
        )
    raise PolicyError(
        f"no policy {choice!r} of workload {reference!r}"
        + (f" for{options}" if options else "")
        + (f" (there is one for {have})" if have else "")
        + f"; find one with: {search}"
    )


def size_and_pair(wanted: Wanted) -> tuple[int, tuple[str, str]]:
    """Workers and protocols of a run that follows no policy: as wanted, or the current policy's.

    So runs can be compared. Without a policy for such a cluster they are the usual ones.
    """
    workers, pair = wanted.workers, wanted.pair
    if workers is not None and pair is not None:
        return workers, pair
    with suppress(SyncSwitchError):
        name = normal_reference(wanted.reference)
        for _, job in named_policies(name, "current", wanted.storage_url):
            if job.simulated_cluster == wanted.cluster.simulated_cluster:
                return workers or job.workers, pair or (job.first_protocol, job.second_protocol)
    return workers or USUAL_WORKERS, pair or parse_pair(USUAL_PROTOCOLS)


def _fitting_policy(
    wanted: Wanted, candidates: list[TimingPolicy], workload: Workload, choice: str
) -> tuple[TimingPolicy, WorkloadIdentity]:
    """The first of at least one policy that was found for exactly this job, and the job."""
    for policy in candidates:
        pair = (policy.first_protocol, policy.second_protocol)
        identity = wanted.cluster.identity(workload, policy.workers, pair)
        if identity.fingerprint == policy.fingerprint:
            return policy, identity
    policy, reference = candidates[0], wanted.reference
    raise PolicyError(
        f"policy {choice!r} is for workload {policy.workload!r} as it was with "
        f"{policy.total_worker_steps:,} worker-steps (fingerprint {policy.fingerprint[:12]}), not "
        f"for {reference!r} as it is now with {workload.total_worker_steps:,} (fingerprint "
        f"{identity.fingerprint[:12]}); find its own with: syncswitch-search run {reference}"
        f"{wanted.cluster.search_options} --workers {policy.workers}"
    )


def policy_named(text: str, storage_url: str, tell: Tell) -> TimingPolicy:
    """The policy of a file, or of `WORKLOAD[@VERSION|@ALIAS]` in the database.

    Raises:
        PolicyError: There is none, there are several, or the file was altered.
    """
    from syncswitch.storage.database.engine import open_database
    from syncswitch.storage.policies.file import read_policy_file
    from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry

    if is_policy_file(text):
        return read_policy_file(text).policy
    # The last one: a folder may have this character in its name, too.
    reference, _, choice = text.rpartition("@") if "@" in text else (text, "", CURRENT)
    selector = normal_reference(reference)
    with open_database(storage_url, create=False) as database:
        registry = PolicyRegistry(database)
        found = registry.choose(selector, choice)
        if not found:
            raise PolicyError(
                f"no policy {text!r}{_versions_of(registry, selector)}; {_HOW_TO_NAME}"
            )
        how_to_choose = "choose with the fingerprint: FINGERPRINT[@VERSION]"
        return preferred_policy(registry, found, tell, how_to_choose=how_to_choose)


def _versions_of(registry: PolicyRegistry, selector: str) -> str:
    """The versions and aliases of a workload, to show that one does not exist."""
    entries = registry.entries(workload=selector)
    if not entries:
        return ""
    aliases = sorted({alias for entry in entries for alias in entry.aliases})
    versions = sorted({entry.policy.version for entry in entries})
    known = ", ".join([*map(str, versions), *aliases])
    return f" (versions and aliases of {selector!r}: {known})"
