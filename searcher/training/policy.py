"""Which policy `syncswitch-run` trains with: of a file or of the database, for this very job."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from syncswitch.searcher.selection import preferred_policy
from syncswitch.searcher.training.uses import (
    Tell,
    is_policy_file,
    known_band,
    next_run,
    own_seed,
    planned_use,
    run_text,
)
from syncswitch.storage.errors import PolicyError, SyncSwitchError, UserError
from syncswitch.storage.records.guard import later_switch_points
from syncswitch.trainers.job.loading import find_module, normal_reference
from syncswitch.trainers.options import USUAL_PROTOCOLS, USUAL_WORKERS
from syncswitch.trainers.protocols import check_protocols, parse_pair

if TYPE_CHECKING:
    from syncswitch.searcher.backends.base import ClusterChoice
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


class Interrupted(Protocol):
    """Finds the run that goes on: its seed, and its switch in percent."""

    def __call__(self, workload: Workload, percent: float | None) -> tuple[int, float] | None:
        """None where another run begins; `percent` is where it must have switched, None for any."""


@dataclass(frozen=True)
class Chosen:
    """What is trained, and when it switches.

    Attributes:
        workload: What the user named.
        identity: The job.
        switch_percent: Of its worker-steps.
        policy: That this is a use of; None for a switch point of the user's own, and for the first
            run of a job that is learnt from its runs.
        band: What the run is held against; None for no guard.
        retry_percents: Where it switches again if that fails, see `TrialSpec`.
        seed: Of the run.
        learns: What it measures decides where later runs switch.
        begins_from: See `NextRun`.
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


@dataclass(frozen=True)
class _Found:
    """A policy, and the job that it was found for."""

    policy: TimingPolicy
    job: WorkloadIdentity


def check_when(
    *,
    learns: bool,
    is_guarded: bool = True,
    choice: str | None = None,
    switch_percent: float | None = None,
    protocol: str | None = None,
    protocols: str | None = None,
) -> None:
    """Raises UserError where the user said twice when to switch; None is for what was not said."""
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


def chosen_by_user(
    cluster: ClusterChoice,
    reference: str,
    pair: tuple[str, str],
    switch_percent: float,
    workers: int,
    seed: int | None,
) -> Chosen:
    """A switch point of the user's own; those who compare such runs want the same seed."""
    workload, identity = _chosen_job(cluster, reference, workers, pair)
    return Chosen(workload, identity, switch_percent, seed or 0)


def chosen_by_policy(
    cluster: ClusterChoice,
    reference: str,
    choice: str,
    workers: int | None,
    pair: tuple[str, str] | None,
    storage_url: str,
    seed: int | None,
    interrupted: Interrupted,
    tell: Tell,
    *,
    is_guarded: bool,
    learnt_uses: int | None,
) -> Chosen:
    """The switch of a policy, or one that learning tries; see `fitting_policy`.

    The seed is the user's, or that of the run that goes on, or one of its own. `learnt_uses` says
    how often the job is trained in all, by runs that may try other switch points; None where they
    keep to the policy.
    """
    if not is_guarded or cluster.simulated_cluster is not None:
        learnt_uses = None
    try:
        candidates = policies_of_cluster(cluster, reference, choice, workers, pair, storage_url)
    except PolicyError:
        if learnt_uses is None:
            raise
        for job in simulated_jobs(reference, choice, workers, pair, storage_url):
            both = job.first_protocol, job.second_protocol
            workload = cluster.load(reference, job.workers)
            identity = cluster.identity(workload, job.workers, both)
            if replace(job, simulated_cluster=None).fingerprint == identity.fingerprint:
                begun = next_run(identity, storage_url, learnt_uses)
                name = normal_reference(reference)
                return _learning(
                    workload, identity, begun, seed, storage_url, interrupted, tell, name
                )
        raise
    workload = cluster.load(reference, max(one.workers for one in candidates))
    policy, identity = fitting_policy(cluster, candidates, workload, reference, choice)
    planned = None
    if learnt_uses is not None:
        planned = planned_use(policy, storage_url, learnt_uses, tell)
    if planned is not None and planned.band is not None:
        return _learning(workload, identity, planned, seed, storage_url, interrupted, tell)
    band = known_band(policy, storage_url, tell) if is_guarded else None
    percent = policy.switch_percent
    retries = later_switch_points(percent) if band else ()
    if seed is None:
        goes_on = interrupted(workload, percent)
        seed = goes_on[0] if goes_on else own_seed(storage_url, identity)
        tell(f"this run has seed {seed}")
    return Chosen(workload, identity, percent, seed, policy, band, retries)


def _learning(
    workload: Workload,
    identity: WorkloadIdentity,
    planned: NextRun,
    seed: int | None,
    storage_url: str,
    interrupted: Interrupted,
    tell: Tell,
    reference: str | None = None,
) -> Chosen:
    """A run that learns as it was planned, or the one that was interrupted.

    `reference` makes a job known to the database that it does not know yet.
    """
    goes_on = interrupted(workload, None)
    percent = goes_on[1] if goes_on else planned.switch_percent
    if seed is None:
        seed = goes_on[0] if goes_on else own_seed(storage_url, identity, reference)
    tell(run_text(identity, seed, percent, planned))
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


def chosen_by_learning(
    cluster: ClusterChoice,
    reference: str,
    workers: int,
    pair: tuple[str, str],
    uses: int,
    storage_url: str,
    seed: int | None,
    interrupted: Interrupted,
    tell: Tell,
) -> Chosen:
    """What the runs so far say of the next one, or the run that was interrupted.

    Args:
        cluster: Where it is trained.
        reference: The workload, as the user named it.
        workers: n.
        pair: Protocols before and after the switch.
        uses: So often the job is trained in all.
        storage_url: The database.
        seed: The user's; None for that of the run that goes on, or one of its own.
        interrupted: See there.
        tell: Shows people how the run trains.
    """
    workload, identity = _chosen_job(cluster, reference, workers, pair)
    planned = next_run(identity, storage_url, uses)
    registered = normal_reference(reference)
    return _learning(workload, identity, planned, seed, storage_url, interrupted, tell, registered)


def _chosen_job(
    cluster: ClusterChoice, reference: str, workers: int, pair: tuple[str, str]
) -> tuple[Workload, WorkloadIdentity]:
    """The job of a run whose switch the user chose.

    Raises:
        UserError: No cluster of this size can run these protocols, or the job is too short for it.
    """
    workload = cluster.load(reference, workers)
    check_protocols(pair, workers)
    identity = cluster.identity(workload, workers, pair)
    # With it comes NumPy, which looking up a policy does not need.
    from syncswitch.trainers.job.checks import check_length

    check_length(identity)
    return workload, identity


def policies_of_cluster(
    cluster: ClusterChoice,
    reference: str,
    choice: str,
    workers: int | None,
    pair: tuple[str, str] | None,
    storage_url: str,
) -> list[TimingPolicy]:
    """Policies of this kind of cluster that may be meant, newest first; at least one.

    Args:
        cluster: Real, or simulated with a profile.
        reference: The workload, as the user named it.
        choice: A policy file, or a version or alias in the database.
        workers: Only for clusters of this size.
        pair: Only for these protocols, before and after the switch.
        storage_url: The database.

    Raises:
        UserError: There is none, or a real cluster has none but those of simulated ones.
    """
    find_module(reference)
    is_file = is_policy_file(choice)
    if is_file:
        from syncswitch.storage.policies.file import read_policy_file

        content = read_policy_file(choice)
        found = [_Found(content.policy, content.workload.identity)]
    else:
        found = _stored(normal_reference(reference), choice, storage_url)
    fitting = _fitting(found, workers, pair)
    here = [one.policy for one in fitting if one.job.simulated_cluster == cluster.simulated_cluster]
    if here:
        return here
    options = cluster.search_options + (f" --workers {workers}" if workers else "")
    options += f" --protocols {','.join(pair)}" if pair else ""
    search = f"syncswitch-search run {reference}{options}"
    if fitting and cluster.simulated_cluster is None:
        jobs = "; ".join(f"{one.policy.workload!r} on {one.job.cluster}" for one in fitting)
        # Of several the newest; its name alone may mean any of them.
        which = choice if is_file else f"{fitting[0].policy.fingerprint[:12]}@{choice}"
        raise PolicyError(
            f"policy {choice!r} was found for a simulated job ({jobs}), not for the real"
            f" {reference!r}; a guarded run that learns begins from it, as long as the workload is"
            f" the same: leave out --policy, --no-learn and --no-guard; or try it on the real job"
            f" with: syncswitch-search evaluate {shlex.join([which, reference])}{options}; or"
            f" search for the real job with: {search}"
        )
    have = "; ".join(one.job.cluster for one in found)
    if is_file:
        raise PolicyError(
            f"the policy in {choice} was found for {have}, and this run is on"
            f" {_asked(cluster, workers, pair)}: train on what it was found for, or find a policy"
            f" for this one with: {search}"
        )
    raise PolicyError(
        f"no policy {choice!r} of workload {reference!r}"
        + (f" for{options}" if options else "")
        + (f" (there is one for {have})" if have else "")
        + f"; find one with: {search}"
    )


def simulated_jobs(
    reference: str,
    choice: str,
    workers: int | None,
    pair: tuple[str, str] | None,
    storage_url: str,
) -> list[WorkloadIdentity]:
    """Jobs on simulated clusters whose policies may be meant; see `policies_of_cluster`."""
    found = _stored(normal_reference(reference), choice, storage_url)
    jobs = [one.job for one in _fitting(found, workers, pair)]
    return [job for job in jobs if job.simulated_cluster is not None]


def _fitting(
    found: list[_Found], workers: int | None, pair: tuple[str, str] | None
) -> list[_Found]:
    return [
        one
        for one in found
        if workers in (None, one.policy.workers)
        and pair in (None, (one.policy.first_protocol, one.policy.second_protocol))
    ]


def _asked(cluster: ClusterChoice, workers: int | None, pair: tuple[str, str] | None) -> str:
    """The cluster of a run as far as its user has said, in words."""
    kind = "real" if cluster.simulated_cluster is None else "simulated"
    words = f"{workers or ''} {kind} {'worker' if workers == 1 else 'workers'}".strip()
    words += f" of{options}" if (options := cluster.search_options) else ""
    return f"{words}, {','.join(pair)}" if pair else words


def size_and_pair(
    cluster: ClusterChoice,
    reference: str,
    workers: int | None,
    pair: tuple[str, str] | None,
    storage_url: str,
) -> tuple[int, tuple[str, str]]:
    """Workers and protocols of a run that follows no policy: given, or the current policy's.

    So runs can be compared. Without one that can be read for such a cluster they are the usual.
    """
    if workers is not None and pair is not None:
        return workers, pair
    with suppress(SyncSwitchError):
        for found in _stored(normal_reference(reference), "current", storage_url):
            if (job := found.job).simulated_cluster == cluster.simulated_cluster:
                return workers or job.workers, pair or (job.first_protocol, job.second_protocol)
    return workers or USUAL_WORKERS, pair or parse_pair(USUAL_PROTOCOLS)


def _stored(name: str, choice: str, storage_url: str) -> list[_Found]:
    from syncswitch.storage.database.engine import open_database
    from syncswitch.storage.policies.registry import PolicyRegistry

    with open_database(storage_url, create=False) as database:
        registry = PolicyRegistry(database)
        entries = (registry.entry(p.fingerprint, p.version) for p in registry.choose(name, choice))
        return [_Found(entry.policy, entry.identity) for entry in entries if entry is not None]


def fitting_policy(
    cluster: ClusterChoice,
    candidates: list[TimingPolicy],
    workload: Workload,
    reference: str,
    choice: str,
) -> tuple[TimingPolicy, WorkloadIdentity]:
    """The first policy that was found for exactly this job, which is the second value.

    Args:
        cluster: Where it is trained.
        candidates: At least one.
        workload: What `reference` names.
        reference: The workload, as the user named it.
        choice: What the user called the policy.

    Raises:
        PolicyError: There is none.
    """
    for policy in candidates:
        pair = (policy.first_protocol, policy.second_protocol)
        identity = cluster.identity(workload, policy.workers, pair)
        if identity.fingerprint == policy.fingerprint:
            return policy, identity
    policy = candidates[0]
    raise PolicyError(
        f"policy {choice!r} is for workload {policy.workload!r} as it was with "
        f"{policy.total_worker_steps:,} worker-steps (fingerprint {policy.fingerprint[:12]}), not "
        f"for {reference!r} as it is now with {workload.total_worker_steps:,} (fingerprint "
        f"{identity.fingerprint[:12]}); find its own with: syncswitch-search run {reference}"
        f"{cluster.search_options} --workers {policy.workers}"
    )


def policy_named(text: str, storage_url: str, tell: Tell) -> TimingPolicy:
    """The policy of a file, or of `WORKLOAD[@VERSION|@ALIAS]` in the database.

    Args:
        text: The name.
        storage_url: The database; not opened for a file.
        tell: Shows people a line where a real job was preferred to simulated ones.

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
    """What there is of a workload, so that a wrong version shows."""
    entries = registry.entries(workload=selector)
    if not entries:
        return ""
    aliases = sorted({alias for entry in entries for alias in entry.aliases})
    versions = sorted({entry.policy.version for entry in entries})
    known = ", ".join([*map(str, versions), *aliases])
    return f" (versions and aliases of {selector!r}: {known})"
