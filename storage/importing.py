"""Runs that were made elsewhere, from one tidy table to the database: each goes in once."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import ColumnElement, Connection, func, insert, select

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import RecordingError
from syncswitch.storage.files import check_plain_file
from syncswitch.storage.metrics import is_converged
from syncswitch.storage.records.job import LARGEST_INTEGER, WorkloadIdentity
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialState
from syncswitch.storage.tables.base import add_rows
from syncswitch.storage.tables.trials import EVALUATIONS, PHASES, TRIALS
from syncswitch.storage.trials.evaluations import add_evaluations, record_target
from syncswitch.storage.trials.workloads import lock_workload, upsert_workload

if TYPE_CHECKING:
    import pandas as pd

_MOST_BYTES = 1 << 30
# So far floats count exactly, and no job ever gets.
_LARGEST_STEP = 2**53
# A run that ends before W by more stopped early; one that ends beyond by more was not this job's.
_LENGTH_TOLERANCE = 0.02
# Per transaction: enough that committing costs little, so few that others can write in between.
_BATCH_RUNS = 200
# Where a run that is there already has other values, it is another run.
_COMPARED = (
    "fingerprint",
    "candidate_percent",
    "switch_percent",
    "replicate",
    "diverged",
    "worker_steps",
    "final_accuracy",
    "training_seconds",
)

_Text = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f]*$")]
_Protocol = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f]*$")]
_Percent = Annotated[float, Field(ge=0, le=100)]
_Size = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
_Seconds = Annotated[float, Field(ge=0)]


class _Run(BaseModel):
    """The columns that say the same in all rows of a run; see `read_table`."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="ignore")

    workload: _Text
    run: _Text
    first_protocol: _Protocol
    second_protocol: _Protocol
    switch_percent: _Percent
    workers: _Size
    total_worker_steps: Annotated[int, Field(ge=1, le=_LARGEST_STEP)]
    candidate_percent: _Percent | None = None
    replicate: Annotated[int, Field(ge=0, le=LARGEST_INTEGER)] = 0
    diverged: bool = False
    worker_steps: Annotated[int, Field(ge=1, le=_LARGEST_STEP)] | None = None
    training_seconds: Annotated[float, Field(gt=0)] | None = None
    first_phase_seconds: _Seconds | None = None
    switch_overhead_seconds: _Seconds = 0.0
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    model: _Text | None = None
    data_set: _Text | None = None
    loss: _Text | None = None
    optimizer: _Text | None = None
    batch_size: _Size | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    metric: _Text | None = None


# Columns of the tests with their least and greatest values.
_TESTS = {
    "worker_step": (0, _LARGEST_STEP),
    "elapsed_seconds": (0.0, math.inf),
    "accuracy": (0.0, 1.0),
    "training_loss": (-math.inf, math.inf),
}
_NEEDED = (
    *(name for name, field in _Run.model_fields.items() if field.is_required()),
    *("worker_step", "elapsed_seconds", "accuracy"),
)
COLUMNS = (*_Run.model_fields, *_TESTS)
"""All that a table may have."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of a run; as in `TrialRecord`, except for the accuracy.

    Attributes:
        evaluations: In the order of their worker-steps.
        phases: One for each protocol that ran; staleness is None.
        final_accuracy: Of the last test, which is also the converged accuracy: the published
            tables take it so, and a table with few tests would else reach back beyond a decay of
            the learning rate.
        converged: Whether the last 5 tests span at most 0.1 pp.
        stopped_early: It ended well before W.
    """

    worker_steps: int
    evaluations: tuple[Evaluation, ...]
    phases: tuple[PhaseRecord, ...]
    final_accuracy: float
    converged: bool
    stopped_early: bool
    training_seconds: float
    switch_overhead_seconds: float
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """A run that somebody made elsewhere.

    Attributes:
        source: What it is known by, unique in a database.
        candidate_percent: The switch point it counts for; None if for none.
        measured: None for a run of which only its divergence is known.
    """

    source: str
    identity: WorkloadIdentity
    candidate_percent: float | None
    switch_percent: float
    replicate: int
    diverged: bool
    measured: Measurements | None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of importing a table.

    Attributes:
        present_runs: Added by an earlier import.
        imported_evaluations: Of those added now.
        workloads: Those of all runs.
    """

    imported_runs: int
    present_runs: int
    imported_evaluations: int
    workloads: tuple[WorkloadIdentity, ...]


def read_table(path: Path) -> list[ImportedRun]:
    """Reads runs from a table, CSV or Parquet, with a row for each test of each run.

    Columns of a run, the same in all its rows: `workload`, `run` (its name, unique in the
    workload), `first_protocol`, `second_protocol`, `switch_percent`, `workers`,
    `total_worker_steps`; also, where known, `candidate_percent` (the switch point that it counts
    for, empty for none; without the column its own), `replicate`, `diverged` (such a run may have
    one row without a test),
    `worker_steps` and `training_seconds` (else those of its last test), `first_phase_seconds` (else
    from the tests around the switch), `switch_overhead_seconds`, `started_at` (else now),
    `ended_at`, `model`, `data_set`, `loss`, `optimizer`, `batch_size`, `learning_rate`, `momentum`
    and `metric`.
    Columns of a test: `worker_step`, `elapsed_seconds` of training, `accuracy` (0 to 1), perhaps
    `training_loss`. Other columns are left alone.

    Raises:
        RecordingError: It cannot be read, lacks a column, or holds what cannot be; says where.
    """
    table = _frame(path)
    missing = [name for name in _NEEDED if name not in table]
    if missing:
        raise RecordingError(
            f"{path} lacks the columns {', '.join(missing)}; found: {', '.join(map(str, table))}"
        )
    if table.empty:
        raise RecordingError(f"{path} lists no run")
    table = table[[name for name in COLUMNS if name in table]]
    for name, possible in _TESTS.items():
        if name in table:
            table = table.assign(**{name: _numbers(path, table[name], possible)})
    keys = ["workload", "run"]
    groups = table.groupby(keys, sort=False, dropna=False)
    for name in _Run.model_fields:
        if name not in keys and name in table:
            known = groups[name].transform("first")
            bad = table[name].notna() & (table[name] != known)
            if bad.any():
                line: Any = bad.idxmax()
                run = table.loc[line]
                what = f"{name} of {run['workload']}/{run['run']} is {reprlib.repr(run[name])}"
                raise _fault(path, line, what, f"{known[line]!r}, as in a row before")
    runs = groups.first().reset_index().astype(object)
    values = runs.where(runs.notna(), None).to_dict("records")
    return [_run(path, given, rows) for given, (_, rows) in zip(values, groups, strict=True)]


def _frame(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        check_plain_file(path, _MOST_BYTES)
        if path.suffix.lower() in (".parquet", ".pq"):
            return pd.read_parquet(path).reset_index(drop=True)
        table = pd.read_csv(path, dtype=str, encoding="utf-8-sig", skip_blank_lines=False)
        return table.dropna(how="all")
    except ImportError as error:
        raise RecordingError(
            "Parquet needs pyarrow, which is missing; run: pip install 'syncswitch[parquet]'"
        ) from error
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # of pandas, pyarrow and the decoder
        raise RecordingError(f"{path} is no table: {' '.join(str(error).split())}") from error


def _numbers(path: Path, column: pd.Series[Any], possible: tuple[float, float]) -> pd.Series[Any]:
    import pandas as pd

    numbers = pd.Series([_number(value) for value in column], column.index)
    bad = (numbers.isna() & column.notna()) | (numbers < possible[0]) | (numbers > possible[1])
    if column.name == "worker_step":
        bad |= numbers % 1 > 0
    elif column.name == "elapsed_seconds":
        bad |= numbers == math.inf
    if bad.any():
        line: Any = bad.idxmax()
        least, most = possible
        allowed = "numbers" if math.isinf(least) else f"numbers from {least:g}"
        allowed += "" if math.isinf(most) else f" to {most:g}"
        raise _fault(path, line, f"{column.name} is {reprlib.repr(column[line])}", allowed)
    return numbers


def _number(value: Any) -> float:
    # Python reads all digits, whatever the version of pandas does.
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _fault(path: Path, place: Any, what: str, allowed: str) -> RecordingError:
    """The first row of values is in line 2."""
    return RecordingError(f"{path} line {place + 2}: {what}; allowed: {allowed}")


def _run(path: Path, given: Mapping[Any, Any], rows: pd.DataFrame) -> ImportedRun:
    place = rows.index[0]
    values = {name: given[name] for name in _Run.model_fields if given.get(name) is not None}
    if "candidate_percent" not in given and "switch_percent" in values:
        values["candidate_percent"] = values["switch_percent"]
    for name in ("first_protocol", "second_protocol"):
        if isinstance(values.get(name), str):
            values[name] = values[name].lower()
    try:
        run = _Run.model_validate(values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name = ".".join(map(str, fault["loc"]))
        if fault["type"] == "missing":
            raise _fault(path, place, f"{name} is empty", "a value in each run") from error
        found = f"{name} is {reprlib.repr(fault['input'])}"
        raise _fault(path, place, found, fault["msg"].removeprefix("Input should be ")) from error
    if run.first_protocol == run.second_protocol:
        both = f"both protocols are {run.first_protocol}"
        raise _fault(path, place, both, "two different ones")
    return ImportedRun(
        source=f"{run.workload}/{run.run}",
        identity=WorkloadIdentity(
            name=run.workload,
            model=run.model,
            data_set=run.data_set,
            loss=run.loss,
            optimizer=run.optimizer,
            total_worker_steps=run.total_worker_steps,
            batch_size=run.batch_size,
            learning_rate=run.learning_rate,
            momentum=run.momentum,
            learning_rate_boundaries=None,
            metric=run.metric,
            evaluation_interval_worker_steps=None,
            workers=run.workers,
            first_protocol=run.first_protocol,
            second_protocol=run.second_protocol,
        ),
        candidate_percent=run.candidate_percent,
        switch_percent=run.switch_percent,
        replicate=run.replicate,
        diverged=run.diverged,
        measured=_measured(path, place, run, rows),
    )


def _measured(path: Path, place: Any, run: _Run, rows: pd.DataFrame) -> Measurements | None:
    who = f"run {run.run} of {run.workload}"
    whole = rows[list(_NEEDED[-3:])].notna().all(axis=1)
    tests = rows[whole.cummin()]
    if not run.diverged and len(tests) < len(rows):
        bad = whole.idxmin()
        raise _fault(path, bad, f"{who} has a test without a number", "that of a diverged run")
    if tests.empty:
        return None
    steps, seconds = tests["worker_step"].tolist(), tests["elapsed_seconds"].tolist()
    for now in range(1, len(steps)):
        if steps[now] <= steps[now - 1] or seconds[now] < seconds[now - 1]:
            what = f"{who} is at worker-step {steps[now]:.0f} at {seconds[now]:g} s"
            what += f", after {steps[now - 1]:.0f} at {seconds[now - 1]:g} s"
            raise _fault(path, tests.index[now], what, "tests in the order of time")
    if "training_loss" not in tests:
        tests = tests.assign(training_loss=math.nan)
    evaluations = tuple(
        Evaluation(int(step), second, accuracy, loss if math.isfinite(loss) else math.nan)
        for step, second, accuracy, loss in tests[list(_TESTS)].itertuples(index=False, name=None)
    )
    worker_steps = evaluations[-1].worker_step if run.worker_steps is None else run.worker_steps
    total_seconds = seconds[-1] if run.training_seconds is None else run.training_seconds
    started_at = run.started_at or datetime.now(timezone.utc)
    W = run.total_worker_steps
    if not total_seconds > 0.0:
        raise _fault(path, place, f"{who} took {total_seconds:g} s", "more than 0 s of training")
    if worker_steps > W * (1.0 + _LENGTH_TOLERANCE) + run.workers:
        raise _fault(path, place, f"{who} ends at worker-step {worker_steps}", f"{W} and less")
    return Measurements(
        worker_steps=worker_steps,
        evaluations=evaluations,
        phases=_phases(run, evaluations, worker_steps, total_seconds),
        final_accuracy=evaluations[-1].accuracy,
        # The decays of an imported job are not known.
        converged=len(tests) == len(rows) and is_converged(evaluations, last_decay_worker_step=0),
        stopped_early=worker_steps < W * (1.0 - _LENGTH_TOLERANCE),
        training_seconds=total_seconds,
        switch_overhead_seconds=run.switch_overhead_seconds,
        started_at=started_at,
        ended_at=run.ended_at or started_at + timedelta(seconds=total_seconds),
    )


def _phases(
    run: _Run, evaluations: Sequence[Evaluation], worker_steps: int, total_seconds: float
) -> tuple[PhaseRecord, ...]:
    switch = math.floor(run.switch_percent / 100.0 * run.total_worker_steps + 0.5)
    if switch == 0 or switch >= worker_steps:
        protocol = run.first_protocol if switch else run.second_protocol
        return (PhaseRecord(protocol, 0, worker_steps, total_seconds, None, None),)
    seconds = run.first_phase_seconds
    if seconds is None:
        steps = [0, *(one.worker_step for one in evaluations), worker_steps]
        times = [0.0, *(one.elapsed_seconds for one in evaluations), total_seconds]
        seconds = float(np.interp(switch, steps, times))
    seconds = min(seconds, total_seconds)
    return (
        PhaseRecord(run.first_protocol, 0, switch, seconds, None, None),
        PhaseRecord(run.second_protocol, switch, worker_steps, total_seconds - seconds, None, None),
    )


def import_runs(database: Database, runs: Sequence[ImportedRun]) -> ImportReport:
    """Adds runs to a database; repeating it, or going on after a kill, does no harm.

    A run whose source is there stays as it is. The mean accuracy of the first protocol alone
    becomes the target of its workload's runs, unless they have one.

    Raises:
        RecordingError: A run is there with other values.
    """
    workloads = {run.identity.fingerprint: run.identity for run in runs}
    new: list[ImportedRun] = []
    for start in range(0, len(runs), _BATCH_RUNS):
        new += database.write(partial(_add, runs=runs[start : start + _BATCH_RUNS]))
    for fingerprint in workloads:
        database.write(partial(_set_target, fingerprint=fingerprint))
    return ImportReport(
        imported_runs=len(new),
        present_runs=len(runs) - len(new),
        imported_evaluations=sum(len(run.measured.evaluations) for run in new if run.measured),
        workloads=tuple(workloads.values()),
    )


def _add(connection: Connection, runs: Sequence[ImportedRun]) -> list[ImportedRun]:
    """Adds the runs that are not there, and gives them."""
    evaluations = func.count(EVALUATIONS.c.trial_id).label("evaluations")
    columns = [TRIALS.c[name] for name in _COMPARED]
    query = (
        select(TRIALS.c.source, *columns, evaluations)
        .outerjoin(EVALUATIONS, EVALUATIONS.c.trial_id == TRIALS.c.trial_id)
        .where(TRIALS.c.source.in_([run.source for run in runs]))
        .group_by(TRIALS.c.trial_id)
    )
    present = {row["source"]: dict(row) for row in connection.execute(query).mappings()}
    for run in runs:
        if run.source in present:
            _check_same(run, present[run.source])
    new = [run for run in runs if run.source not in present]
    if new:
        _insert(connection, new)
    return new


def _check_same(run: ImportedRun, there: Mapping[str, Any]) -> None:
    tests = len(run.measured.evaluations) if run.measured else 0
    here = {**_trial_values(run), "evaluations": tests}
    for name in (*_COMPARED, "evaluations"):
        if there[name] != here[name]:
            what = "its workload differs" if name == "fingerprint" else f"{name} is {here[name]}"
            was = "" if name == "fingerprint" else f", was {there[name]}"
            raise RecordingError(
                f"{run.source} is not what was imported as that: {what}{was}; give a changed run"
                f" another name"
            )


def _set_target(connection: Connection, fingerprint: str) -> None:
    # So that of two importers the later one sees the runs of both.
    lock_workload(connection, fingerprint)
    target = _mean_baseline_accuracy(connection, fingerprint)
    if target is not None:
        record_target(connection, _is_imported(fingerprint), target)


def _is_imported(fingerprint: str) -> ColumnElement[bool]:
    return (TRIALS.c.fingerprint == fingerprint) & TRIALS.c.source.is_not(None)


def _mean_baseline_accuracy(connection: Connection, fingerprint: str) -> float | None:
    """Mean accuracy of the runs with the first protocol alone; None where there is none."""
    query = select(TRIALS.c.converged_accuracy).where(
        _is_imported(fingerprint),
        TRIALS.c.candidate_percent == 100.0,
        TRIALS.c.diverged.is_(False),
        TRIALS.c.converged_accuracy.is_not(None),
    )
    accuracies = [value for value in connection.scalars(query) if value is not None]
    # Sorted, so that databases that list them in another order sum to the same bits.
    return math.fsum(sorted(accuracies)) / len(accuracies) if accuracies else None


def _insert(connection: Connection, runs: Sequence[ImportedRun]) -> None:
    for identity in {run.identity.fingerprint: run.identity for run in runs}.values():
        upsert_workload(connection, identity, reference=identity.name)
    statement = insert(TRIALS).returning(TRIALS.c.source, TRIALS.c.trial_id)
    rows = connection.execute(statement, [_trial_values(run) for run in runs])
    trial_ids = {row.source: row.trial_id for row in rows}
    phases: list[dict[str, Any]] = []
    for run in runs:
        if run.measured is None:
            continue
        trial_id = trial_ids[run.source]
        phases.extend(
            {"trial_id": trial_id, "position": position, **asdict(phase)}
            for position, phase in enumerate(run.measured.phases)
        )
    add_rows(connection, PHASES, phases)
    add_evaluations(
        connection,
        ((trial_ids[run.source], run.measured.evaluations) for run in runs if run.measured),
    )


def _trial_values(run: ImportedRun) -> dict[str, Any]:
    measured = run.measured
    values: dict[str, Any] = {
        "source": run.source,
        "fingerprint": run.identity.fingerprint,
        "candidate_percent": run.candidate_percent,
        "switch_percent": run.switch_percent,
        "replicate": run.replicate,
        "state": TrialState.COMPLETE,
        "diverged": run.diverged,
        "worker_steps": measured.worker_steps if measured else 0,
    }
    for name in (
        "final_accuracy",
        "converged",
        "stopped_early",
        "training_seconds",
        "switch_overhead_seconds",
        "started_at",
        "ended_at",
    ):
        values[name] = getattr(measured, name) if measured else None
    values["converged_accuracy"] = values["final_accuracy"]
    values["converged_evaluations"] = 1 if measured else None
    values["inherited_seconds"] = 0.0 if measured else None
    return values
