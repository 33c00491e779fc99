"""Which job, which policy, which search and which conditions a report is about; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.rows import CURRENT, PolicyEntry
from syncswitch.storage.records.job import RegisteredWorkload, RunConditions
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.values import SearchInfo, StoredTrial


def only_job(
    known: Sequence[RegisteredWorkload],
    reference: str,
    workers: int | None,
    protocols: tuple[str, str] | None,
    place: str,
) -> RegisteredWorkload:
    """The one job that is meant; raises UserError where there is none, or there are several."""
    fitting = [
        job
        for job in known
        if workers in (None, job.identity.workers)
        and protocols in (None, (job.identity.first_protocol, job.identity.second_protocol))
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UserError(
            f"{reference!r} names {len(fitting)} jobs: {_named(fitting)}; choose with --workers,"
            " --protocols or the fingerprint"
        )
    if known:
        raise UserError(
            f"{reference!r} has no runs on such a cluster; there is: {_named(known)}; choose one of"
            " them, or leave out --workers and --protocols"
        )
    raise UserError(
        f"no workload {reference!r} in {place}; see: syncswitch-search trials, or find its policy"
        f" with: syncswitch-search run {reference}"
    )


def _named(jobs: Iterable[RegisteredWorkload]) -> str:
    return "; ".join(f"{job.identity.cluster} [{job.identity.fingerprint[:12]}]" for job in jobs)


def shown_policy(
    versions: Sequence[PolicyEntry],
    searches: Mapping[str, SearchInfo],
    study: str | None,
    version: str | None = None,
) -> PolicyEntry | None:
    """The version or alias that is named, else what the named search found, else the current one.

    Raises UserError where there is no such version or search.
    """
    if version is not None:
        return _version(versions, version)
    if study is None:
        return next((entry for entry in versions if CURRENT in entry.aliases), None)
    if study not in searches:
        known = ", ".join(searches) or "none"
        raise UserError(f"no search {study!r} of this job; there is: {known}")
    found = (entry for entry in versions if entry.policy.study == study and not entry.imported_at)
    return next(found, None)


def _version(versions: Sequence[PolicyEntry], version: str) -> PolicyEntry:
    for entry in versions:
        if version in (str(entry.policy.version), *entry.aliases):
            return entry
    numbers = [str(entry.policy.version) for entry in versions]
    aliases = sorted({alias for entry in versions for alias in entry.aliases})
    known = ", ".join([*numbers, *aliases]) or "none"
    raise UserError(f"no version or alias {version!r} of this job; there is: {known}")


def shown_search(
    searches: Mapping[str, SearchInfo], policy: PolicyEntry | None, study: str | None
) -> SearchInfo | None:
    """The search that is named, else the one that found the policy, else the newest.

    An evaluation looks for nothing, so it is shown only where it is named.
    """
    if study is not None:
        return searches[study]
    if policy is not None and policy.imported_at is None and policy.policy.study in searches:
        return searches[policy.policy.study]
    real = [one for one in searches.values() if one.strategy != ComparisonStrategy().name]
    return real[-1] if real else None


def shown_conditions(trials: Iterable[StoredTrial], search: SearchInfo | None) -> RunConditions:
    """Those of the search; without one the usual ones, where a complete run had them."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if search is not None:
        complete = [trial for trial in complete if trial.study == search.study]
    found = [trial.conditions for trial in complete]
    usual = RunConditions()
    return usual if not found or usual in found else found[-1]
