"""The runs of a job as figures need them: whole, undisturbed or not, each with its curve."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncswitch.searcher.words import run_conditions_text
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.trial import Evaluation, TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.trainers.job.loading import normal_reference, split_variant
from syncswitch.trainers.replay import whole_runs

if TYPE_CHECKING:
    from syncswitch.storage.database.engine import Database
    from syncswitch.storage.trials.values import StoredTrial


@dataclass(frozen=True, slots=True)
class FigureRun:
    """One whole run.

    Attributes:
        cluster: A few digits of a simulated cluster's profile; empty for a real one.
        percent: The switch point that it counts for; 100 is the first protocol alone.
        under: Online policy, way of switching, injections, later switches; empty for the default.
        accuracy: None where it diverged.
        seconds: Training time; None if it was not recorded.
        curve: Its tests.
        switch_seconds: Duration of the switch; None without one.
        variant: The fields in which its workload is another one, as `sweep` takes them; empty for
            the workload as it is.
    """

    workload: str
    workers: int
    cluster: str
    total_worker_steps: int
    protocols: tuple[str, str]
    percent: float
    under: str
    seed: int | None
    accuracy: float | None
    seconds: float | None
    curve: tuple[Evaluation, ...] = ()
    switch_seconds: float | None = None
    variant: str = ""

    @property
    def alone(self) -> str | None:
        """The protocol of a run without a switch; None of one with."""
        if self.percent in (0.0, 100.0):
            return self.protocols[0 if self.percent else 1]
        return None

    @property
    def name(self) -> str:
        """A description of the job, for people."""
        if self.alone is not None:
            return self.alone.upper()
        first, second = (protocol.upper() for protocol in self.protocols)
        return f"{first} {self.percent:g} %, {second}"


def bsp_percent(first_protocol: str, percent: float) -> float:
    """Share of the job in BSP."""
    return percent if first_protocol == "bsp" else 100 - percent


def read_runs(database: Database, workload: str, has_variants: bool = False) -> list[FigureRun]:
    """Reads the whole runs of a job that count for a switch point, those of all clusters.

    Of the runs with one seed that train alike, such as BSP alone in both orders, the first counts.

    Args:
        database: Open.
        workload: Name, reference, or start of the fingerprint.
        has_variants: Also those of the workload's variants.
    """
    store, variants = TrialStore(database), _variants(database, workload, has_variants)
    jobs: dict[str, list[StoredTrial]] = defaultdict(list)
    for fingerprint in variants:
        for trial in store.trials(fingerprint=fingerprint):
            if trial.state == TrialState.COMPLETE and trial.candidate_percent is not None:
                jobs[fingerprint].append(trial)
    found: dict[object, FigureRun] = {}
    for fingerprint, trials in jobs.items():
        whole = whole_runs(trials, store.curves(fingerprint))
        for trial in trials:
            if trial.trial_id not in whole or trial.result.stopped_early:
                continue
            variant = _variant_of(trial, variants[fingerprint])
            if variant and not has_variants:
                continue
            run = _run(trial, whole[trial.trial_id].evaluations, variant)
            cluster = (run.workers, run.cluster, run.total_worker_steps)
            same = (*cluster, run.variant, run.name, run.under, run.seed)
            key = trial.trial_id if run.seed is None else same
            found.setdefault(key, run)
    return list(found.values())


def _variants(database: Database, workload: str, has_variants: bool) -> dict[str, str]:
    """By fingerprint of the jobs in question; the workload as it is goes before its variants."""
    registry = PolicyRegistry(database)
    chosen = registry.workloads(normal_reference(workload))[::-1]
    found = {known.job.fingerprint: _variant(known.reference) for known in chosen}
    if has_variants:
        bases = {split_variant(known.reference)[0] for known in chosen}
        for name in {known.job.name for known in chosen}:
            for known in registry.workloads(name)[::-1]:
                if split_variant(known.reference)[0] in bases:
                    found[known.job.fingerprint] = _variant(known.reference)
        return found
    usual = min(found.values(), default="")
    return {fingerprint: variant for fingerprint, variant in found.items() if variant == usual}


def _variant(reference: str) -> str:
    _, fields = split_variant(reference)
    # The rule of the second protocol is that of each trial.
    return ",".join(f"{field}={value}" for field, value in fields.items() if field != _RULE)


_RULE = "momentum_after_switch"


def _variant_of(trial: StoredTrial, variant: str) -> str:
    rule = trial.job.momentum_after_switch
    if rule in (None, "same", "own", "own-optimizer") or trial.candidate_percent == 100:
        return variant
    return ",".join(filter(None, (f"{_RULE}={rule}", variant)))


def _run(trial: StoredTrial, curve: tuple[Evaluation, ...], variant: str) -> FigureRun:
    return FigureRun(
        workload=trial.job.workload,
        workers=trial.job.workers,
        cluster=(trial.job.simulated_cluster or "")[:8],
        total_worker_steps=trial.total_worker_steps,
        protocols=(trial.job.first_protocol, trial.job.second_protocol),
        percent=trial.candidate_percent or 0.0,
        under=run_conditions_text(trial.conditions),
        seed=trial.seed,
        accuracy=None if trial.result.diverged else trial.result.converged_accuracy,
        seconds=None if trial.result.diverged else trial.times.training_seconds,
        curve=curve,
        switch_seconds=trial.times.switch_overhead_seconds,
        variant=variant,
    )
