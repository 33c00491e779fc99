"""Runs that were made elsewhere, from one tidy table to the database: each is imported once."""

from __future__ import annotations

import itertools
import math
import reprlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from sqlalchemy import ColumnElement, Connection, func, insert, select

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import FatalError, RecordingError
from syncswitch.storage.files import check_plain_file
from syncswitch.storage.metrics import is_converged
from syncswitch.storage.records.flat import flat, nested
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.limits import LARGEST_INTEGER
from syncswitch.storage.records.trial import (
    LONGEST_SECONDS,
    Evaluation,
    PhaseRecord,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.storage.tables.base import add_rows
from syncswitch.storage.tables.trials import EVALUATIONS, PHASES, TRIALS
from syncswitch.storage.trials.evaluations import add_evaluations, record_target
from syncswitch.storage.trials.possible import LENGTH_TOLERANCE, check_run
from syncswitch.storage.trials.workloads import lock_workload, upsert_workload

if TYPE_CHECKING:
    import pandas as pd

_MOST_BYTES = 1 << 30
# The largest number up to which floats count exactly; no job gets there.
_LARGEST_STEP = 2**53
# Runs per transaction: enough that commits cost little, so few that others can write in between.
_BATCH_RUNS = 200
# A run that is there already is another one if it differs in these.
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
_Protocol = Annotated[
    str, StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f]*$", to_lower=True)
]
_Percent = Annotated[float, Field(ge=0, le=100)]
_Size = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Run(BaseModel):
    """The columns that are the same in all rows of a run; see `read_table`."""

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


_TESTS: Mapping[str, TypeAdapter[Any]] = {
    "worker_step": TypeAdapter(list[Annotated[int, Field(ge=0, le=_LARGEST_STEP)]]),
    "elapsed_seconds": TypeAdapter(list[_Seconds]),
    "accuracy": TypeAdapter(list[Annotated[float, Field(ge=0, le=1)]]),
    "training_loss": TypeAdapter(list[float]),
}
_MEASURED = ["worker_step", "elapsed_seconds", "accuracy"]
_NEEDED = [name for name, field in _Run.model_fields.items() if field.is_required()] + _MEASURED
COLUMNS = (*_Run.model_fields, *_TESTS)
"""The columns that a table may have."""


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """A run that was made elsewhere; if only its divergence is known, the rest is None or empty.

    `source` is what it is known by, unique in a database. The accuracy of its last test is also its
    converged accuracy: so the published tables take it, and the mean of a table with few tests
    would reach back beyond a decay of the learning rate.
    """

    source: str
    identity: ScheduledJob
    candidate_percent: float | None
    switch_percent: float
    replicate: int
    diverged: bool
    worker_steps: int = 0
    evaluations: tuple[Evaluation, ...] = ()
    phases: tuple[PhaseRecord, ...] = ()
    final_accuracy: float | None = None
    converged: bool | None = None
    stopped_early: bool | None = None
    training_seconds: float | None = None
    switch_overhead_seconds: float | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """How many runs and evaluations of a table were added, and the jobs of all its runs."""

    imported_runs: int
    present_runs: int
    imported_evaluations: int
    workloads: tuple[ScheduledJob, ...]


def read_table(path: Path) -> list[ImportedRun]:
    """Reads runs from a table, CSV or Parquet, with a row for each test of each run.

    These columns are the same in all rows of a run: `workload`, `run` (its name, unique in the
    workload), `first_protocol`, `second_protocol`, `switch_percent`, `workers`,
    `total_worker_steps`; where known also `candidate_percent` (the switch point that it counts
    for, empty for none; without the column its own), `replicate`, `diverged` (such a run may have
    one row without a test),
    `worker_steps` and `training_seconds` (else those of its last test), `first_phase_seconds` (else
    from the tests around the switch), `switch_overhead_seconds`, `started_at` (else now),
    `ended_at`, `model`, `data_set`, `loss`, `optimizer`, `batch_size`, `learning_rate`, `momentum`
    and `metric`.
    Columns of a test are `worker_step`, `elapsed_seconds` of training, `accuracy` (0 to 1), and
    perhaps `training_loss`. Other columns are ignored.

    Raises:
        RecordingError: The table cannot be read, lacks a column, or holds an impossible value; the
            message names the line.
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
    table = table.assign(**{name: _numbers(path, table[name]) for name in _TESTS if name in table})
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
    # The rows of each run one after the other; for tables of their own there are too many runs.
    of_run = groups.ngroup().to_numpy()
    order = np.argsort(of_run, kind="stable")
    bounds = np.searchsorted(of_run[order], np.arange(len(values) + 1))
    ordered = table.take(order)
    if "training_loss" not in ordered:
        ordered = ordered.assign(training_loss=math.nan)
    tests = list(ordered[list(_TESTS)].itertuples(index=True, name=None))
    return [
        _run(path, given, tests[start:end])
        for given, (start, end) in zip(values, itertools.pairwise(bounds.tolist()), strict=True)
    ]


def _frame(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        check_plain_file(path, _MOST_BYTES)
        if path.suffix.lower() in (".parquet", ".pq"):
            return pd.read_parquet(path).reset_index(drop=True)
        with warnings.catch_warnings():
            # Else a field too many in the first row would shift the columns, or be dropped.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                path, dtype=str, encoding="utf-8-sig", skip_blank_lines=False, index_col=False
            )
        return table.dropna(how="all")
    except pd.errors.ParserWarning as error:
        raise RecordingError(
            f"{path} has rows with more fields than its header; give each field a column, and"
            " quote texts with commas"
        ) from error
    except ImportError as error:
        raise RecordingError(
            "Parquet needs pyarrow, which is missing; run: pip install 'syncswitch[parquet]'",
            code="package-missing",
        ) from error
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # from pandas, pyarrow and the decoder
        raise RecordingError(f"{path} is not a table: {' '.join(str(error).split())}") from error


def _numbers(path: Path, column: pd.Series[Any]) -> pd.Series[Any]:
    """Returns a column of the evaluations as numbers; missing values stay missing."""
    import pandas as pd

    known = column.dropna()
    try:
        numbers = _TESTS[str(column.name)].validate_python(known.tolist())
    except ValidationError as error:
        position: Any = error.errors(include_url=False)[0]["loc"][0]
        raise _refused(path, known.index[position], str(column.name), error) from error
    return pd.Series(numbers, known.index, dtype=float).reindex(column.index)


def _fault(path: Path, place: Any, what: str, allowed: str) -> RecordingError:
    return RecordingError(f"{path} line {place + 2}: {what}; allowed: {allowed}")


def _refused(path: Path, place: Any, name: str, error: ValidationError) -> RecordingError:
    fault = error.errors(include_url=False)[0]
    if fault["type"] == "missing":
        return _fault(path, place, f"{name} is empty", "a value in each run")
    allowed = fault["msg"].removeprefix("Input should be ")
    return _fault(path, place, f"{name} is {reprlib.repr(fault['input'])}", allowed)


_Test = tuple[Any, float, float, float, float]
"""The place of a row, and its worker-step, seconds, accuracy and loss; NaN where it has none."""


def _run(path: Path, given: Mapping[Any, Any], rows: Sequence[_Test]) -> ImportedRun:
    place = rows[0][0]
    values = {name: given[name] for name in _Run.model_fields if given.get(name) is not None}
    if "candidate_percent" not in given and "switch_percent" in values:
        values["candidate_percent"] = values["switch_percent"]
    try:
        run = _Run.model_validate(values)
    except ValidationError as error:
        name = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        raise _refused(path, place, name, error) from error
    if run.first_protocol == run.second_protocol:
        both = f"both protocols are {run.first_protocol}"
        raise _fault(path, place, both, "two different ones")
    imported = ImportedRun(
        source=f"{run.workload}/{run.run}",
        identity=nested(ScheduledJob, {"name": run.workload, **run.model_dump()}),
        **run.model_dump(include=_OF_RUNS),
        **_measured(path, place, run, rows),
    )
    try:
        if imported.evaluations:
            check_run(_record_of(imported))
    except FatalError as error:
        who = f"run {run.run} of {run.workload}: {''.join(map(str, error.what))}"
        raise _fault(path, place, who, error.allowed or "what a training can measure") from error
    return imported


def _record_of(run: ImportedRun) -> TrialRecord:
    """Returns a measured run as one that was made here, to be held to the same."""
    assert run.started_at is not None
    assert run.ended_at is not None
    assert run.final_accuracy is not None
    return TrialRecord(
        spec=TrialSpec(run.identity, run.switch_percent, seed=0, replicate=run.replicate),
        worker_steps=run.worker_steps,
        evaluations=run.evaluations,
        phases=run.phases,
        converged_accuracy=run.final_accuracy,
        converged=bool(run.converged),
        diverged=run.diverged,
        stopped_early=bool(run.stopped_early),
        training_seconds=run.training_seconds or 0.0,
        inherited_seconds=0.0,
        switch_overhead_seconds=run.switch_overhead_seconds or 0.0,
        started_at=run.started_at,
        ended_at=run.ended_at,
        host="",
    )


_OF_RUNS = {"candidate_percent", "switch_percent", "replicate", "diverged"}


def _measured(path: Path, place: Any, run: _Run, rows: Sequence[_Test]) -> dict[str, Any]:
    """Returns the fields of `ImportedRun` that the evaluations of a run say."""
    who = f"run {run.run} of {run.workload}"
    tests = list(itertools.takewhile(lambda row: not any(map(math.isnan, row[1:4])), rows))
    if not run.diverged and len(tests) < len(rows):
        what = f"{who} has an evaluation without a number"
        raise _fault(path, rows[len(tests)][0], what, "that of a diverged run")
    if not tests:
        return {}
    for (_, step, seconds, *_), (line, after, later, *_) in itertools.pairwise(tests):
        if after <= step or later < seconds:
            what = f"{who} is at worker-step {after:.0f} at {later:g} s"
            what += f", after {step:.0f} at {seconds:g} s"
            raise _fault(path, line, what, "evaluations in the order of time")
    evaluations = tuple(
        Evaluation(int(step), second, accuracy, loss if math.isfinite(loss) else math.nan)
        for _, step, second, accuracy, loss in tests
    )
    last = evaluations[-1]
    worker_steps = last.worker_step if run.worker_steps is None else run.worker_steps
    total_seconds = last.elapsed_seconds if run.training_seconds is None else run.training_seconds
    started_at = run.started_at or datetime.now(timezone.utc)
    W = run.total_worker_steps
    if not 0.0 < total_seconds <= LONGEST_SECONDS:
        allowed = f"more than 0 s of training, up to {LONGEST_SECONDS:g} s"
        raise _fault(path, place, f"{who} took {total_seconds:g} s", allowed)
    if worker_steps > W * (1.0 + LENGTH_TOLERANCE) + run.workers:
        raise _fault(path, place, f"{who} ends at worker-step {worker_steps}", f"{W} and less")
    return {
        "worker_steps": worker_steps,
        "evaluations": evaluations,
        "phases": _phases(run, evaluations, worker_steps, total_seconds),
        "final_accuracy": evaluations[-1].accuracy,
        # The decays of an imported job are not known.
        "converged": len(tests) == len(rows)
        and is_converged(evaluations, last_decay_worker_step=0),
        "stopped_early": worker_steps < W * (1.0 - LENGTH_TOLERANCE),
        "training_seconds": total_seconds,
        "switch_overhead_seconds": run.switch_overhead_seconds,
        "started_at": started_at,
        "ended_at": run.ended_at or started_at + timedelta(seconds=total_seconds),
    }


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
    """Adds runs to a database; may be repeated, also after it was killed.

    A run whose source is there stays as it is. The mean accuracy of the first protocol alone
    becomes the target of its workload's imported runs.

    Raises:
        RecordingError: A run is there with other values.
    """
    workloads = {_fingerprint(run.identity): run.identity for run in runs}
    new: list[ImportedRun] = []
    for start in range(0, len(runs), _BATCH_RUNS):
        new += database.write(partial(_add, runs=runs[start : start + _BATCH_RUNS]))
    for fingerprint in workloads:
        database.write(partial(_set_target, fingerprint=fingerprint))
    return ImportReport(
        imported_runs=len(new),
        present_runs=len(runs) - len(new),
        imported_evaluations=sum(len(run.evaluations) for run in new),
        workloads=tuple(workloads.values()),
    )


def _add(connection: Connection, runs: Sequence[ImportedRun]) -> list[ImportedRun]:
    evaluations = func.count(EVALUATIONS.c.trial_id).label("evaluations")
    query = (
        select(TRIALS.c.source, *(TRIALS.c[name] for name in _COMPARED), evaluations)
        .outerjoin(EVALUATIONS, EVALUATIONS.c.trial_id == TRIALS.c.trial_id)
        .where(TRIALS.c.source.in_([run.source for run in runs]))
        .group_by(TRIALS.c.trial_id)
    )
    present = {row["source"]: dict(row) for row in connection.execute(query).mappings()}
    for run in runs:
        if run.source in present:
            _check_same(run, present[run.source])
    new = [run for run in runs if run.source not in present]
    if not new:
        return []
    for identity in {_fingerprint(run.identity): run.identity for run in new}.values():
        upsert_workload(connection, identity.job, reference=identity.name)
    statement = insert(TRIALS).returning(TRIALS.c.source, TRIALS.c.trial_id)
    rows = connection.execute(statement, [_trial_values(run) for run in new])
    trial_ids = {row.source: row.trial_id for row in rows}
    phases = (
        {"trial_id": trial_ids[run.source], "position": position, **asdict(phase)}
        for run in new
        for position, phase in enumerate(run.phases)
    )
    add_rows(connection, PHASES, phases)
    add_evaluations(connection, ((trial_ids[run.source], run.evaluations) for run in new))
    return new


def _check_same(run: ImportedRun, there: Mapping[str, Any]) -> None:
    here = {**_trial_values(run), "evaluations": len(run.evaluations)}
    for name in (*_COMPARED, "evaluations"):
        if there[name] != here[name]:
            what = f"{name} is {here[name]}, was {there[name]}"
            if name == "fingerprint":
                what = "its workload differs"
            raise RecordingError(
                f"{run.source} is not what was imported under this name: {what}; give a changed run"
                f" another name"
            )


def _trial_values(run: ImportedRun) -> dict[str, Any]:
    is_measured = run.final_accuracy is not None
    names = set(ImportedRun.__dataclass_fields__) - {"identity", "evaluations", "phases"}
    return {
        **{name: getattr(run, name) for name in names},
        "fingerprint": _fingerprint(run.identity),
        **flat(run.identity.protocols),
        "state": TrialState.COMPLETE,
        "converged_accuracy": run.final_accuracy,
        "converged_evaluations": 1 if is_measured else None,
        "inherited_seconds": 0.0 if is_measured else None,
    }


@lru_cache
def _fingerprint(identity: ScheduledJob) -> str:
    return identity.fingerprint


def _set_target(connection: Connection, fingerprint: str) -> None:
    # So that of two importers the later one sees the runs of both.
    lock_workload(connection, fingerprint)
    is_imported: ColumnElement[bool] = (TRIALS.c.fingerprint == fingerprint) & (
        TRIALS.c.source.is_not(None)
    )
    query = select(TRIALS.c.converged_accuracy).where(
        is_imported,
        TRIALS.c.candidate_percent == 100.0,
        TRIALS.c.diverged.is_(False),
        TRIALS.c.converged_accuracy.is_not(None),
    )
    # Sorted, so that databases that list them in another order sum to the same bits.
    accuracies = sorted(connection.scalars(query))
    if accuracies:
        record_target(connection, is_imported, math.fsum(accuracies) / len(accuracies))
