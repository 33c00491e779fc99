"""The view of trials: its columns are those that are documented, and each says what it should."""

from __future__ import annotations

from typing import Any

from sqlalchemy import inspect, select

from syncswitch.storage.database.engine import Database
from syncswitch.storage.queries.columns import columns_of_table
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import TRIALS
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.store import uses
from tests.storage.conftest import both_databases
from tests.storage.filled import REGRET, identity


def facts(database: Database) -> list[dict[str, Any]]:
    query = select(TRIAL_FACTS).order_by(TRIAL_FACTS.c.trial_id)
    with database.transaction(read_only=True) as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def expected(trial: StoredTrial, software: dict[str, str] | None) -> dict[str, Any]:
    """What a row of the view has to say of a trial, from what the store says."""
    censored = None
    if trial.state == "complete" and trial.target_accuracy is not None:
        censored = trial.time_to_accuracy_seconds is None
    metric = REGRET if trial.workload == "disturbed" else Metric()
    row: dict[str, Any] = {
        **metric.naming,
        **{
            f"{which}_value": None if accuracy is None else metric.value(accuracy)
            for which in ("converged", "final", "target")
            for accuracy in [getattr(trial, f"{which}_accuracy")]
        },
        "time_to_accuracy_is_censored": censored,
        "failed_switches": len(trial.failed_switches),
        "guard_lost_seconds": sum(one.lost_seconds for one in trial.failed_switches) or None,
        "software": software,
        "online": trial.conditions.online,
        "switch_mechanism": trial.conditions.switch_mechanism,
        "injections": "; ".join(trial.conditions.injections) or None,
    }
    for which, protocol in (("first", trial.first_protocol), ("second", trial.second_protocol)):
        phases = [phase for phase in trial.phases if phase.protocol == protocol]
        seconds = sum(phase.seconds for phase in phases)
        steps = sum(phase.end_worker_step - phase.start_worker_step for phase in phases)
        row[f"{which}_phase_seconds"] = seconds if phases else None
        row[f"{which}_phase_worker_steps_per_second"] = steps / seconds if seconds else None
    return {
        column.name: row[column.name] if column.name in row else getattr(trial, column.name)
        for column in TRIAL_FACTS.columns
    }


@both_databases
def test_the_view_has_the_columns_that_are_described(database: Database) -> None:
    found = inspect(database.engine).get_columns(TRIAL_FACTS.name)
    assert [column["name"] for column in found] == TRIAL_FACTS.columns.keys()
    if database.engine.dialect.name == "postgresql":  # SQLite knows no types of expressions
        kinds = [column["type"].python_type for column in found]
        described = [column.kind for column in columns_of_table(TRIAL_FACTS)]
        assert [dict if kind is object else kind for kind in kinds] == described


def test_every_value_of_the_view_is_what_the_store_says(any_filled: Database) -> None:
    with any_filled.transaction(read_only=True) as connection:
        query = select(TRIALS.c.trial_id, TRIALS.c.software)
        software = {row.trial_id: row.software for row in connection.execute(query)}
    trials = TrialStore(any_filled).trials()
    assert len(trials) > 20
    trials += uses(any_filled, identity().fingerprint)
    assert facts(any_filled) == [expected(trial, software[trial.trial_id]) for trial in trials]


def test_runs_of_every_kind_were_compared(filled: Database) -> None:
    rows = facts(filled)
    assert {row["kind"] for row in rows} == {"search", "import", "use"}
    assert {row["guard"] for row in rows} == {"off", "quiet", "alarmed", None}
    assert {row["state"] for row in rows} == {"complete", "failed", "running"}
    for column in columns_of_table(TRIAL_FACTS):
        missing = [row[column.name] is None for row in rows]
        assert not all(missing), f"no row has a {column.name}"
        assert any(missing) == column.nullable, f"{column.name} is described as nullable, or not"
    assert {row["speculative"] for row in rows} == {True, False}
    for name in ("converged", "diverged", "stopped_early", "time_to_accuracy_is_censored"):
        assert {row[name] for row in rows} == {True, False, None}


def test_every_column_is_documented() -> None:
    assert all(column.meaning for column in columns_of_table(TRIAL_FACTS))
