"""`run --dry-run`: what a search will cost, before any of it is paid."""

from __future__ import annotations

import dataclasses
import math

from syncswitch.cli.console import echo, print_json, print_table, print_text
from syncswitch.cli.search.launch.result import finite
from syncswitch.searcher.simulation.forecast import Forecast, forecast
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import holds_nothing
from syncswitch.storage.errors import UserError
from syncswitch.storage.metrics import seconds_at_pace
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.store import TrialStore


def print_forecast(
    strategy: Strategy,
    identity: WorkloadIdentity,
    given_seconds: tuple[float | None, float | None],
    storage_url: str,
    *,
    as_json: bool,
) -> None:
    """Prints the cost of the search for each answer that it may find; see `forecast`.

    The seconds are those of a training with the first, and with the second protocol alone; None to
    derive them from the throughput in the recorded runs of this very job. Raises UserError where
    one is unknown or impossible.
    """
    first, second = given_seconds
    if first is None or second is None:
        recorded = _recorded_seconds(storage_url, identity)
        first = recorded[0] if first is None else first
        second = recorded[1] if second is None else second
    if first is None or second is None:
        raise UserError(
            "no recorded run of this job says how long a training takes with each protocol alone;"
            " give --first-seconds and --second-seconds"
        )
    answers = forecast(strategy, first, second)
    if as_json:
        print_json([_as_json(answer) for answer in answers])
        return
    name = identity.first_protocol.upper()
    print_table(
        ["if the answer is", "runs", f"cost / {name}", "hours", "speed-up", "pays back after"],
        [_cells(answer, first) for answer in answers],
    )
    echo()
    print_text(
        f"Assumes {first:,.1f} s for a training with {name} alone and {second:,.1f} s with"
        f" {identity.second_protocol.upper()} alone; {_caveat(strategy)} Nothing was trained."
    )


def _caveat(strategy: Strategy) -> str:
    if strategy.repeats is not None:
        return "an unlucky search costs more."
    return (
        "runs and costs are means over searches on generated accuracies, in which no run ends early"
        " and every halving below the answer loses three times the threshold."
    )


def _recorded_seconds(
    storage_url: str, identity: WorkloadIdentity
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
    return (
        seconds_at_pace(phases, identity.first_protocol, identity.total_worker_steps),
        seconds_at_pace(phases, identity.second_protocol, identity.total_worker_steps),
    )


def _as_json(answer: Forecast) -> dict[str, float | None]:
    return {name: finite(value) for name, value in dataclasses.asdict(answer).items()}


def _cells(answer: Forecast, first_seconds: float) -> list[str]:
    recurrences = answer.amortized_recurrences
    return [
        f"{answer.switch_percent:g} %",
        f"{round(answer.runs, 1):g}",
        f"{answer.search_cost:.1f}",
        f"{answer.search_cost * first_seconds / 3600:.2f}",
        f"{answer.speed_up:.2f}",
        "never" if math.isinf(recurrences) else _trainings(math.ceil(recurrences)),
    ]


def _trainings(number: int) -> str:
    return "1 training" if number == 1 else f"{number} trainings"
