"""`syncswitch-search status`: how far each search and evaluation is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from syncswitch.searcher.cli.reference import nothing_found, optional_workload, selector_of
from syncswitch.searcher.cli.render import conditions_text, workers_text
from syncswitch.searcher.observed import measures, observation
from syncswitch.searcher.rules.by_name import stored_rule
from syncswitch.searcher.rules.comparison import ComparisonRule
from syncswitch.storage.errors import UserError
from syncswitch.storage.records import RunConditions
from syncswitch.trainers.console import EXIT_OK, common_options, print_json, print_table

if TYPE_CHECKING:
    from syncswitch.storage.records import TimingPolicy, WorkloadIdentity
    from syncswitch.storage.trials import SearchInfo, StoredTrial

__all__ = ["status"]


@click.command()
@optional_workload
@common_options
def status(reference: str | None, storage_url: str, as_json: bool) -> int:
    """Shows how far each search and evaluation is, of WORKLOAD or of all."""
    from syncswitch.storage.engine import open_database
    from syncswitch.storage.policies import PolicyRegistry
    from syncswitch.storage.trials import TrialStore

    selector = selector_of(reference)
    with open_database(storage_url, create=False) as database:
        store, registry = TrialStore(database), PolicyRegistry(database)
        policies = {p.study: p for p in registry.policies(workload=selector, imported=False)}
        known = store.searches(workload=selector)
        states: dict[str, dict[str, Any]] = {}
        for fingerprint in {search.fingerprint for search in known}:
            numbered = _by_study(store.trials(fingerprint=fingerprint))
            workload = registry.workload(fingerprint)
            assert workload is not None  # every search refers to one
            for search in known:
                if search.fingerprint == fingerprint:
                    policy = policies.get(search.study)
                    rows = numbered[search.study]
                    states[search.study] = _search_state(search, workload.identity, rows, policy)
        searches = [states[search.study] for search in known]
    if as_json:
        print_json(searches)
    elif not searches:
        click.echo(nothing_found(reference))
    else:
        _print_searches(searches)
    return EXIT_OK


def _by_study(rows: Iterable[StoredTrial]) -> defaultdict[str, dict[int, StoredTrial]]:
    """The trials of each search by their number in it."""
    found: defaultdict[str, dict[int, StoredTrial]] = defaultdict(dict)
    for row in rows:
        if row.study is not None and row.trial_number is not None:
            found[row.study][row.trial_number] = row
    return found


def _search_state(
    search: SearchInfo,
    identity: WorkloadIdentity,
    rows: dict[int, StoredTrial],
    policy: TimingPolicy | None,
) -> dict[str, Any]:
    from syncswitch.searcher.liveness import state_of
    from syncswitch.storage.event_rows import condition_values

    rule = stored_rule(search)
    # Those of its runs; before the first one nobody knows them.
    conditions = next((row.conditions for row in rows.values()), RunConditions())
    finished = [
        observation(
            row.switch_percent,
            row.converged_accuracy,
            diverged=bool(row.diverged),
            trial_number=number,
            replicate=row.replicate,
            measured=measures(row, row),
        )
        for number, row in rows.items()
        if row.state == "complete" and row.converged_accuracy is not None
    ]
    in_flight = sum(state_of(row) == "running" for row in rows.values())
    cancelled = sum(row.is_cancelled for row in rows.values())
    bracket: tuple[float, float] | None = None
    target: float | None = search.target_accuracy
    try:
        progress = rule.progress(finished)
        state = "running" if in_flight else "stopped"
        if isinstance(rule, ComparisonRule):
            # An evaluation looks for no setting and publishes nothing.
            state = "done" if progress.open_percent is None else state
        else:
            bracket = (progress.lower_percent, progress.upper_percent)
            target = progress.target_accuracy
    except UserError:
        state = "baseline diverged"
    if policy is not None:
        state = "done"
    return {
        "workload": policy.workload if policy else identity.name,
        "fingerprint": search.fingerprint,
        "workers": identity.workers,
        "simulated_cluster": identity.simulated_cluster,
        **condition_values(conditions),
        "study": search.study,
        "strategy": search.strategy,
        "state": state,
        "finished_runs": len(finished),
        "most_runs": rule.most_runs if rule.repeats else None,
        "in_flight_runs": in_flight,
        "failed_runs": len(rows) - len(finished) - in_flight - cancelled,
        "cancelled_runs": cancelled,
        "speculative_runs": sum(row.speculative for row in rows.values()),
        "lower_percent": bracket[0] if bracket else None,
        "upper_percent": bracket[1] if bracket else None,
        "target_accuracy": target,
        "policy_version": policy.version if policy else None,
        "switch_percent": policy.switch_percent if policy else None,
    }


def _print_searches(searches: list[dict[str, Any]]) -> None:
    rows = []
    has_simulated = any(search["simulated_cluster"] for search in searches)
    are_unusual = any(map(_conditions, searches))
    for search in searches:
        workers = workers_text(search["workers"], search["simulated_cluster"])
        lower, upper = search["lower_percent"], search["upper_percent"]
        answer = "-" if lower is None else f"{lower:g} to {upper:g} %"
        if search["policy_version"] is not None:
            answer = f"{search['switch_percent']:g} % (version {search['policy_version']})"
        rows.append(
            [
                search["study"],
                *([workers] if has_simulated else []),
                search["state"],
                str(search["finished_runs"])
                + (f" of {search['most_runs']}" if search["most_runs"] else ""),
                str(search["in_flight_runs"]),
                str(search["failed_runs"]),
                answer,
                *([_conditions(search) or "-"] if are_unusual else []),
            ]
        )
    columns = ["search", *(["workers"] if has_simulated else []), "state", "runs", "in flight"]
    columns += ["failed", "switch at", *(["under"] if are_unusual else [])]
    print_table(columns, rows, prose="under")


def _conditions(search: dict[str, Any]) -> str:
    return conditions_text(search["online"], search["switch_mechanism"], search["injections"])
