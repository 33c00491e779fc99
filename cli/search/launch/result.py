"""The output of `run`: a forecast, or the result of a search, as tables, sentences and JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from syncswitch.cli.console import Row, echo, finite, print_json, print_rows, print_text
from syncswitch.searcher.forecast import Forecast, forecast
from syncswitch.searcher.search.pairs import PairOutcome, best_of, why_dropped
from syncswitch.searcher.search.policy_words import policy_text, spread_text
from syncswitch.searcher.search.search import SearchResult
from syncswitch.searcher.speed_up import speed_up_of
from syncswitch.searcher.strategies.base import Decided, Strategy, SwitchPointSummary
from syncswitch.searcher.words import (
    NONE,
    accuracy_text,
    counted,
    measured_threshold_text,
    percent_text,
    seconds_text,
    sentence,
    switch_text,
    trainings_text,
    value_text,
)
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import holds_nothing
from syncswitch.storage.errors import UserError
from syncswitch.storage.metrics import seconds_at_pace
from syncswitch.storage.queries.search_costs import SearchCost
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.job import ScheduledJob, protocol_text
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.uses.summary import goal_of

_VERDICTS = {True: "yes", False: "no", None: "open"}


def result_as_json(result: SearchResult, pairs: Sequence[PairOutcome] = ()) -> dict[str, Any]:
    """The document of `run --json`, with the protocol pairs that were searched together."""
    policy, cost = result.policy, result.cost
    speed_up = speed_up_of(policy, cost.baseline_seconds)
    document: dict[str, Any] = {
        "policy": flat(policy),
        "search": {
            "study": policy.study,
            "strategy": policy.strategy,
            "confidence": policy.promise.confidence,
            "threshold_is_measured": policy.allowed.is_from_runs,
            "cost_bsp_multiples": cost.bsp_multiples,
            "cost_is_estimated": cost.baseline_is_estimated,
            "baseline_seconds": cost.baseline_seconds,
            "paid_seconds": cost.paid_seconds,
            "trials": cost.completed_runs,
            "failed_trials": cost.failed_runs,
            "speculative_trials": cost.speculative_runs,
            "cancelled_trials": cost.cancelled_runs,
            "wall_seconds": cost.wall_seconds,
            "speed_up": speed_up.value if speed_up else None,
        },
        "switch_points": [
            {**dataclasses.asdict(summary), "training_seconds": seconds}
            for summary, seconds in result.switch_points
        ],
        **({"pairs": pairs_as_json(pairs)} if pairs else {}),
    }
    return policy.job.metric.document(document)


def print_result(
    result: SearchResult,
    identity: ScheduledJob,
    how_to_use: Sequence[str],
    pairs: Sequence[PairOutcome] = (),
) -> None:
    """Prints the results of several pairs, the table of switch points, and the policy in words."""
    policy, cost = result.policy, result.cost
    if pairs:
        _print_pairs(pairs)
    print_rows([_cells(*switch_point, cost, policy) for switch_point in result.switch_points])
    echo()
    print_text(policy_text(policy, identity, cost.baseline_seconds))
    metric, first = policy.job.metric, protocol_text(policy.protocols.first_protocol)
    goal = goal_of(policy, ())
    if policy.allowed.is_from_runs:
        print_text(sentence(measured_threshold_text(policy.allowed, metric, first)))
    elif goal is not None and (spread := spread_text(goal, metric, first)):
        print_text(sentence(spread))
    saved = f"Saved as version {policy.version}; use it with:"
    print_text(f"{_cost_sentence(cost, policy, pairs)} {saved}")
    for line in how_to_use:
        echo(line)


def _cells(
    summary: SwitchPointSummary, seconds: float | None, cost: SearchCost, policy: TimingPolicy
) -> Row:
    first_protocol = policy.protocols.first_protocol
    is_baseline = summary.switch_percent == 100
    spread = summary.standard_deviation
    baseline = cost.baseline_seconds
    share = None if seconds is None or not baseline else seconds / baseline
    metric = policy.job.metric
    accuracy = accuracy_text(summary.mean_accuracy, metric)
    if summary.diverged_runs:
        accuracy = f"{summary.diverged_runs} diverged"
    return [
        ("switch at", switch_text(summary.switch_percent, first_protocol)),
        ("runs", str(summary.runs)),
        (metric.name, accuracy),
        ("spread", NONE if spread is None or summary.diverged_runs else metric.amount(spread)),
        ("accepted", "target" if is_baseline else _VERDICTS[summary.accepted]),
        ("seconds", value_text(seconds, ".1f")),
        ("time / BSP" if first_protocol == "bsp" else "time / first", value_text(share, ".2f")),
    ]


def _cost_sentence(
    cost: SearchCost, policy: TimingPolicy, pairs: Sequence[PairOutcome] = ()
) -> str:
    if pairs and cost.baseline_seconds:
        paid = math.fsum(pair.paid_seconds for pair in pairs) / cost.baseline_seconds
        trainings = trainings_text(paid, policy.protocols.first_protocol)
        return f"Search cost: {trainings}, all pairs together."
    if cost.bsp_multiples is None:
        runs = counted(cost.completed_runs, "run")
        return f"Search cost: {cost.paid_seconds:.0f} s of training in {runs}."
    about = "about " if cost.baseline_is_estimated else ""
    note = " (estimated: there is no such run)" if cost.baseline_is_estimated else ""
    runs = counted(cost.speculative_runs, "speculative run")
    early = f", {runs} included" if cost.speculative_runs else ""
    trainings = trainings_text(cost.bsp_multiples, policy.protocols.first_protocol)
    return f"Search cost: {about}{trainings}{note}{early}."


def pairs_as_json(pairs: Sequence[PairOutcome]) -> list[dict[str, Any]]:
    """One JSON object per pair; all but the answer say why they were dropped."""
    best = best_of(pairs)
    documents = []
    for pair in pairs:
        answer = pair.found if isinstance(pair.found, Decided) else None
        documents.append(
            {
                "protocols": [pair.identity.first_protocol, pair.identity.second_protocol],
                "switch_percent": answer and answer.switch_percent,
                "seconds": finite(pair.seconds) if answer else None,
                "trials": pair.runs,
                "paid_seconds": pair.paid_seconds,
                "dropped": None if best is None or pair is best else why_dropped(pair, best),
            }
        )
    return documents


def _print_pairs(pairs: Sequence[PairOutcome]) -> None:
    told = list(zip(pairs, pairs_as_json(pairs), strict=True))
    print_rows(
        [
            [
                ("protocols", pair.name),
                ("switch at", NONE if percent is None else percent_text(percent)),
                ("expected seconds", seconds_text(document["seconds"])),
                ("runs", str(pair.runs)),
                ("paid seconds", seconds_text(pair.paid_seconds)),
            ]
            for pair, document in told
            for percent in [document["switch_percent"]]
        ]
    )
    echo()
    for pair, document in told:
        if document["dropped"]:
            print_text(f"{pair.name} was {document['dropped']}.")
    echo()


def print_forecast(
    strategy: Strategy,
    identity: ScheduledJob,
    given_seconds: tuple[float | None, float | None],
    storage_url: str,
    *,
    as_json: bool,
) -> None:
    """Prints the cost of the search for each possible answer; see `forecast`.

    The seconds are those of a training with each protocol alone; None to derive them from the
    recorded runs of this job. Raises UserError if one is unknown or impossible.
    """
    first, second = given_seconds
    if first is None or second is None:
        recorded = _recorded_seconds(storage_url, identity)
        first = recorded[0] if first is None else first
        second = recorded[1] if second is None else second
    if first is None or second is None:
        raise UserError(
            "no recorded run of this job says how long a training takes with each protocol alone;"
            " give --first-seconds and --second-seconds",
            code="parameter-missing",
        )
    answers = forecast(strategy, first, second)
    if as_json:
        documents = (dataclasses.asdict(answer) for answer in answers)
        print_json([{name: finite(one) for name, one in answer.items()} for answer in documents])
        return
    name, other = map(protocol_text, (identity.first_protocol, identity.second_protocol))
    print_rows([_forecast_cells(answer, first, name) for answer in answers])
    echo()
    print_text(
        f"Assumes {first:,.1f} s for a training with {name} alone and {second:,.1f} s with"
        f" {other} alone; {_caveat(strategy)} Nothing was trained."
    )


def _caveat(strategy: Strategy) -> str:
    if strategy.repeats is not None:
        return "an unlucky search costs more."
    return (
        "runs and costs are means over searches on generated accuracies, in which no run ends early"
        " and every halving below the answer loses three times the threshold."
    )


def _recorded_seconds(
    storage_url: str, identity: ScheduledJob
) -> tuple[float | None, float | None]:
    if holds_nothing(storage_url):
        return None, None
    with open_database(storage_url, create=False) as database:
        trials = TrialStore(database).trials(fingerprint=identity.fingerprint)
    phases = [
        phase
        for trial in trials
        if trial.state == TrialState.COMPLETE and trial.conditions.is_undisturbed
        for phase in trial.phases
    ]
    first, second = identity.first_protocol, identity.second_protocol
    steps = identity.total_worker_steps
    return seconds_at_pace(phases, first, steps), seconds_at_pace(phases, second, steps)


def _forecast_cells(answer: Forecast, first_seconds: float, first_protocol: str) -> Row:
    often = answer.amortized_recurrences
    paid_back = "never" if math.isinf(often) else counted(math.ceil(often), "training")
    return [
        ("if the answer is", f"{answer.switch_percent:g} %"),
        ("runs", f"{round(answer.runs, 1):g}"),
        (f"cost / {first_protocol}", f"{answer.search_cost:.1f}"),
        ("hours", f"{answer.search_cost * first_seconds / 3600:.2f}"),
        ("speed-up", f"{answer.speed_up:.2f}"),
        ("pays back after", paid_back),
    ]
