"""A test tool: searches in a database whose runs measured known numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from generated_trainer import GeneratedTrainer, identity

from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.guard import GuardOutcome
from syncswitch.storage.records.job import RunConditions, ScheduledJob, SearchInfo
from syncswitch.storage.records.policy import Evidence, TimingPolicy, whole_use
from syncswitch.storage.records.trial import RunEvent, TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import CANCELLED, Fork, Owner
from syncswitch.storage.uses.store import record_use
from tests.searcher.policies import policy_of

STUDY = "generated-1"
UNDISTURBED = RunConditions()
BASELINE_SECONDS = 100.0  # of the generated trainer; ASP alone takes 40
EVENTS = (
    RunEvent("injected", 30, 1.0, "straggler:worker=3", None, None),
    RunEvent("detected", 60, 2.0, "worker 3 is <b>slow</b>", 3, None),
    RunEvent("removed", 60, 2.0, "the others go on", 3, None),
    RunEvent("switched", 1500, 50.0, "as asked for", None, 0.01),
)


@dataclass(frozen=True)
class Made:
    """A run of a search: what it measured, and what became of it."""

    percent: float
    accuracy: float = 0.95
    diverged: bool = False
    end: str = "complete"
    fork: Fork | None = None
    inherited_seconds: float = 0.0
    reached: float = 1.0
    speculative: bool = False
    conditions: RunConditions = UNDISTURBED
    events: tuple[RunEvent, ...] = ()


FINISHED = (
    Made(100.0, 0.951),
    Made(100.0, 0.949),
    Made(50.0, 0.952),
    Made(50.0, 0.950),
    Made(25.0, 0.1, diverged=True),
)
"""Of a paper's search with 2 switch points and 2 runs each; the answer is 50 %."""


def search_info(job: ScheduledJob, **changes: object) -> SearchInfo:
    info = SearchInfo(STUDY, job.fingerprint, job.protocols, "paper", 2, 2, 0.01, None, "local", 7)
    return replace(info, **changes)  # type: ignore[arg-type]


def add_search(
    database: Database,
    runs: Sequence[Made] = FINISHED,
    *,
    job: ScheduledJob | None = None,
    owner: Owner | None = None,
    **changes: object,
) -> SearchInfo:
    """A search and its runs, numbered as they come; replicates count per switch point."""
    job = job or identity()
    store, info = TrialStore(database), search_info(job, **changes)
    store.register(job, job.name, info)
    for number, made in enumerate(runs):
        replicate = sum(before.percent == made.percent for before in runs[:number])
        spec = TrialSpec(job, made.percent, replicate, replicate, conditions=made.conditions)
        run = {"fork": made.fork, "speculative": made.speculative}
        store.begin(info.study, number, spec, owner or Owner.current(), **run)
        _end(store, info.study, number, made, spec)
    return info


def _end(store: TrialStore, study: str, number: int, made: Made, spec: TrialSpec) -> None:
    record = record_of(made, spec)
    if made.end == "complete":
        store.complete(study, number, record)
    elif made.end == "cancelled":
        store.cancel(study, number, record, CANCELLED)
    elif made.end == "failed":
        store.fail(study, number, "the server was lost")


def record_of(made: Made, spec: TrialSpec) -> TrialRecord:
    record = GeneratedTrainer().train(spec)
    steps = round(made.reached * record.worker_steps)
    last = record.phases[-1]
    done = (steps - last.start_worker_step) / (last.end_worker_step - last.start_worker_step)
    phases = (
        *record.phases[:-1],
        replace(last, end_worker_step=steps, seconds=done * last.seconds),
    )
    return replace(
        record,
        worker_steps=steps,
        phases=phases if made.fork is None else phases[-1:],
        training_seconds=sum(phase.seconds for phase in phases),
        evaluations=tuple(
            replace(one, accuracy=made.accuracy)
            for one in record.evaluations
            if one.worker_step <= steps
        ),
        converged_accuracy=made.accuracy,
        diverged=made.diverged,
        converged=not made.diverged,
        stopped_early=made.reached < 1 and not made.diverged,
        inherited_seconds=made.inherited_seconds,
        events=made.events,
    )


def publish(database: Database, info: SearchInfo, **changes: object) -> TimingPolicy:
    """The policy that this search would publish for `FINISHED`."""
    job = identity()
    registered = PolicyRegistry(database).workload(info.fingerprint)
    name = job.name if registered is None else registered.job.name
    found = {
        "fingerprint": info.fingerprint,
        "workload": name,
        "switch_percent": 50.0,
        "target_accuracy": 0.95,
        "mean_accuracy": 0.951,
        "training_seconds": 70.0,
        "baseline_seconds": BASELINE_SECONDS,
        "strategy": info.strategy,
        "study": info.study,
        "evidence": (Evidence(info.study, 0, 100.0, 0, 0.951, False, 100.0),),
        "software": {"syncswitch": "0"},
    }
    return PolicyRegistry(database).publish(policy_of(job, **{**found, **changes}))


def add_use(
    database: Database,
    policy: TimingPolicy,
    seed: int,
    made: Made,
    *,
    job: ScheduledJob | None = None,
    guard: GuardOutcome | None = None,
) -> None:
    """A later run with a policy."""
    spec = TrialSpec(job or identity(), made.percent, seed=seed)
    use = whole_use(policy, f"use-{seed}", replace(record_of(made, spec), guard=guard))
    record_use(database, use)


def add_imported(database: Database, folder: Path) -> str:
    """Runs that were only imported; gives their name."""
    from tests.storage.filled import import_runs

    import_runs(database, folder)
    return "recorded"
