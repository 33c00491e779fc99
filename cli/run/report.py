"""The output of `syncswitch-run`: its progress, and the report at its end."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from syncswitch.cli import console
from syncswitch.searcher.search.policy_words import held_text, promise_sentences, spread_text
from syncswitch.searcher.words import capitalized, counted, run_conditions_text
from syncswitch.storage.metrics import time_to_accuracy_seconds
from syncswitch.storage.records.goal import is_kept
from syncswitch.storage.records.guard import GuardOutcome
from syncswitch.storage.records.job import protocol_label, protocol_text
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.trainers.run.record import is_remarkable

if TYPE_CHECKING:
    from syncswitch.searcher.training.train import Training
    from syncswitch.storage.records.job import ScheduledJob
    from syncswitch.storage.records.trial import TrialRecord
    from syncswitch.trainers.trainer import Observer


@contextmanager
def watching(identity: ScheduledJob) -> Iterator[Observer]:
    """An observer that shows a progress bar on a terminal, elsewhere some lines."""
    with console.progress_display() as (write, bars):
        yield console.RunProgress(identity, f"training {identity.name}", write, bars)


_LONG_PHASE_PERCENT = 10.0
_LONG_PHASE_SECONDS = 20.0
# Fewer paces between evaluations of the first phase do not say how much they differ.
_FEWEST_PACES = 2
# The same run on the same machine varies by this much.
_LEAST_NOISE = 0.05
# The spread of a single recorded run is unknown.
_NOISE_OF_ONE = 0.1


@dataclass(frozen=True)
class Baseline:
    """The time of a training with the first protocol alone."""

    seconds: float
    source: str
    noise: float

    def speed_up(self, record: TrialRecord) -> float | None:
        return self.seconds / record.training_seconds if record.training_seconds > 0 else None


def baseline_of(done: Training) -> Baseline | None:
    """The time of the first protocol alone, from recorded runs, this very run, or its policy.

    It is extrapolated from the first phase of the run if that is long enough; None if unknown.
    """
    policy, record = done.policy, done.record
    spec = record.spec
    name, label = (say(spec.identity.first_protocol) for say in (protocol_text, protocol_label))
    if done.alone_seconds:
        runs = len(done.alone_seconds)
        mean = statistics.fmean(done.alone_seconds)
        source = f"{name} alone in {counted(runs, 'recorded run')}"
        noise = _NOISE_OF_ONE
        if runs > 1:  # that of a further run, two standard deviations either way
            noise = 2 * statistics.stdev(done.alone_seconds) / mean * math.sqrt(1 + 1 / runs)
        return Baseline(mean, source, max(_LEAST_NOISE, noise))
    is_long = record.phases[0].seconds >= _LONG_PHASE_SECONDS
    if is_long or spec.switch_percent >= _LONG_PHASE_PERCENT:
        estimated = _estimated(record)
        if estimated is not None:
            source = f"{name} alone, as estimated from the pace of this run's {label} phase"
            return Baseline(estimated[0], source, estimated[1])
    seconds = None if policy is None else policy.measured.baseline_seconds
    if seconds is not None:
        return Baseline(seconds, f"{name} alone in the search", _LEAST_NOISE)
    return None


def _estimated(record: TrialRecord) -> tuple[float, float] | None:
    """The seconds of the first protocol alone, and the share by which they may be wrong.

    The first phase is extrapolated: its time to the first evaluation, as a run is slower while
    functions are compiled and data are read, the rest at its later pace. None with few evaluations.
    """
    first, identity = record.phases[0], record.spec.identity
    if first.protocol != identity.first_protocol or first.start_worker_step:
        return None
    ends = {e.worker_step: e.elapsed_seconds for e in record.evaluations}
    ends[first.end_worker_step] = first.seconds
    points = [(step, ends[step]) for step in sorted(ends) if step <= first.end_worker_step]
    parts = itertools.pairwise(points)
    paces = [(later - seconds) / (after - step) for (step, seconds), (after, later) in parts]
    if len(paces) < _FEWEST_PACES or min(paces) <= 0:
        return None
    (start, start_seconds), (end, end_seconds) = points[0], points[-1]
    pace = (end_seconds - start_seconds) / (end - start)
    error = 2 * statistics.stdev(paces) / pace / math.sqrt(len(paces))
    seconds = start_seconds + (identity.total_worker_steps - start) * pace
    return seconds, max(_LEAST_NOISE, error)


def report_as_json(done: Training) -> dict[str, Any]:
    """The report as a document for JSON."""
    from syncswitch.storage.records.flat import flat

    policy, record, baseline, goal = done.policy, done.record, baseline_of(done), done.goal
    identity, guard = record.spec.identity, record.guard or GuardOutcome(record.spec.switch_percent)
    document: dict[str, Any] = {
        "policy": None if policy is None else flat(policy),
        "workload": identity.name,
        "fingerprint": identity.fingerprint,
        "workers": identity.workers,
        "first_protocol": identity.first_protocol,
        "second_protocol": identity.second_protocol,
        "switch_percent": record.spec.switch_percent,
        **identity.metric.naming,
        "accuracy": record.converged_accuracy,
        "final_accuracy": record.final_accuracy,
        "target_accuracy": None if goal is None else goal.accuracy,
        "converged": record.converged,
        "reaches_target": _reaches_target(done),
        "target_runs": None if goal is None else goal.runs,
        "training_seconds": record.training_seconds,
        "baseline_seconds": None if baseline is None else baseline.seconds,
        "baseline_source": "unknown" if baseline is None else baseline.source,
        "speed_up": None if baseline is None else baseline.speed_up(record),
        "time_to_accuracy_seconds": _seconds_to_target(done),
        "switch_overhead_seconds": record.switch_overhead_seconds,
        "worker_steps": record.worker_steps,
        "phases": [
            {**asdict(phase), "worker_steps_per_second": phase.worker_steps_per_second}
            for phase in record.phases
        ],
        "conditions": asdict(record.spec.conditions),
        "guard": {
            "state": "off" if record.guard is None else guard.state,
            **asdict(guard),
            "lost_seconds": guard.lost_seconds,
        },
        "events": [asdict(event) for event in record.events],
        "model": str(done.model_path) if done.has_model else None,
        "output_folder": None if done.has_model else str(done.model_path),
        "seed": record.spec.seed,
    }
    return identity.metric.document(document)


def _seconds_to_target(done: Training) -> float | None:
    if done.goal is None:
        return None
    return time_to_accuracy_seconds(done.record.evaluations, done.goal.accuracy)


def _reaches_target(done: Training) -> bool | None:
    policy, record = done.counts_for, done.record
    if policy is None:
        return None
    return is_kept(done.goal, record.converged_accuracy, diverged=record.diverged)


_STALENESS = "staleness mean (max)"


def print_report(done: Training) -> None:
    """Prints a finished run as tables and sentences."""
    policy, record = done.policy, done.record
    steps = f"{record.spec.identity.step_noun}s"
    console.print_rows(
        [
            [
                ("phase", protocol_label(phase.protocol)),
                (steps, f"{phase.end_worker_step - phase.start_worker_step:,}"),
                ("seconds", f"{phase.seconds:.2f}"),
                (f"{steps}/s", f"{phase.worker_steps_per_second:,.0f}"),
                # Replicas have none: nobody else writes to them.
                (
                    _STALENESS,
                    "-"
                    if phase.mean_staleness is None
                    else f"{phase.mean_staleness:.2f} ({phase.max_staleness})",
                ),
            ]
            for phase in record.phases
        ],
        # Nobody knows that of a command.
        {_STALENESS} if record.spec.identity.is_command else (),
    )
    _print_events(record)
    console.echo()
    console.print_text(_outcome(done))
    console.print_text(_time_sentence(done))
    if record.guard is not None:
        console.print_text(_guarded(record, record.guard))
    if policy is not None and _reaches_target(done) is False and not _is_noisy(done):
        is_guarded = policy.is_for_guard and record.guard is not None
        share, usual = policy.promise.kept_share, policy.promise.baseline_kept_share
        share = policy.promise.delivered_share if is_guarded else share
        if share is not None:
            own, first = "", protocol_text(policy.protocols.first_protocol)
            if usual is not None and policy.switch_percent < 100:
                own = f", and {100 * (1 - usual):.0f} of 100 with {first} alone"
            lost = f"{100 * (1 - share):.0f} of 100 runs with this policy"
            console.print_text(f"About {lost} lose that much{own}.")
    if done.has_model:
        console.echo(f"Model saved as {done.model_path}")
    else:
        console.echo(f"The command's output is in {done.model_path}")


def _is_noisy(done: Training) -> bool:
    """Whether runs of the first protocol alone differ too much for what its policy expected."""
    policy, goal = done.policy, done.goal
    assert policy is not None
    metric, first = policy.job.metric, policy.protocols.first_protocol
    return goal is not None and spread_text(goal, metric, first) is not None


def _time_sentence(done: Training) -> str:
    """The training time, beside that of the first protocol alone unless the run used it alone."""
    policy, record = done.policy, done.record
    took = f"Training took {record.training_seconds:.1f} s"
    baseline = baseline_of(done)
    speed_up = None if baseline is None else baseline.speed_up(record)
    is_itself = record.spec.switch_percent >= BASELINE_PERCENT and (
        policy is None or not done.alone_seconds
    )
    if baseline is None or speed_up is None or is_itself:
        return f"{took}."
    if abs(speed_up - 1) <= baseline.noise:  # the difference may be chance
        compared = "about as long"
    elif speed_up > 1:
        compared = f"{speed_up:.2f} times as fast"
    else:
        compared = f"{1 / speed_up:.2f} times as long"
    text = f"{took}, {compared} as {baseline.source} ({baseline.seconds:.1f} s)"
    if record.spec.identity.is_command:  # the switch is its own, and not measured
        return f"{text}."
    return f"{text}; the switch took {record.switch_overhead_seconds * 1000:.1f} ms."


def _outcome(done: Training) -> str:
    policy, record, goal = done.counts_for, done.record, done.goal
    identity = record.spec.identity
    job = identity.job.sized_name
    metric = identity.metric
    accuracy = f"{metric.name} {metric.text(record.converged_accuracy)}"
    if done.policy is None:
        first, second = map(protocol_text, (identity.first_protocol, identity.second_protocol))
        percent = record.spec.switch_percent
        how = f"switching from {first} to {second} at {percent:g} %"
        if percent in (0, 100):
            how = f"with {first if percent else second} alone"
        asked = "" if done.was_announced else " as you asked"  # by its user, not by what learns
        reached = f"{job}, {how}{asked}: {accuracy}"
    else:
        reached = f"{job} with policy version {done.policy.version}: {accuracy}"
    if policy is None:
        return f"{reached}."
    if not policy.allowed.is_known and record.spec.switch_percent == BASELINE_PERCENT:
        return (
            f"{reached}. This is one of the {policy.allowed.runs} runs without a switch that"
            " measure the target, and how much worse later models may be."
        )
    if goal is None or not policy.allowed.is_known:
        if done.policy is None or done.was_announced:
            first = protocol_text(identity.first_protocol)
            return f"{reached}. No run of {first} alone has measured a target of this job yet."
        return f"{reached}. {promise_sentences(policy)}"
    guard, seconds = record.guard, _seconds_to_target(done)
    is_alone = record.spec.switch_percent == BASELINE_PERCENT
    if is_alone and goal.runs == 1 and goal.accuracy == record.converged_accuracy:
        return f"{reached}, which is the target of later runs."
    held = held_text(
        record.converged_accuracy,
        goal,
        metric,
        is_let_through=guard is not None and guard.held_percent not in (None, BASELINE_PERCENT),
    )
    aim = metric.text(goal.accuracy)
    when = "never reached" if seconds is None else f"first reached after {seconds:.1f} s"
    has_reached = record.converged_accuracy >= goal.accuracy
    compared = f" (target {aim}, {when})" if has_reached else f", {held}; target {when}"
    # A run that went back changes the mean of those without a switch.
    before = None if record.spec.band is None else record.spec.band.target_accuracy
    if guard is not None and guard.failed and before is not None and metric.text(before) != aim:
        compared += f"; when the guard sent it back, the target was {metric.text(before)}"
    return f"{reached}{compared}."


def _guarded(record: TrialRecord, guard: GuardOutcome) -> str:
    """A sentence such as `The guard went back to the switch at 25 % after 2 s: ...`."""
    if not guard.failed:
        return "The guard found nothing wrong after the switch."
    second = record.spec.identity.second_protocol
    tries = [
        f"{failed.place(second)} after {failed.lost_seconds:.1f} s: {failed.alarm}"
        for failed in guard.failed
    ]
    first, held = protocol_text(record.spec.identity.first_protocol), guard.held_percent
    went, then, done = "went back to the switch at", "to that at", "did the rest"
    if all(0 < failed.elapsed_seconds <= failed.lost_seconds for failed in guard.failed):
        went, then, done = "gave up the switch at", "that at", "trained from the start"
    last = f"The switch at {held:g} % held"
    if any(failed.second_protocol not in (None, second) for failed in guard.failed):
        last = f"The switch to {protocol_text(second)} at {held:g} % held"
    if held in (None, BASELINE_PERCENT):
        last = f"{capitalized(first)} alone {done}"
    went = f"The guard {went} {f'; {then} '.join(tries)}"
    return f"{went}. {last}. That cost {guard.lost_seconds:.1f} s."


def _print_events(record: TrialRecord) -> None:
    if text := run_conditions_text(record.spec.conditions):
        console.echo()
        console.print_text(f"Trained under these conditions: {text}.")
    if not any(map(is_remarkable, record.events)):
        return
    console.echo()
    total = record.spec.identity.total_worker_steps
    console.print_rows(
        [
            [
                ("event", event.kind),
                ("at", f"{100 * event.worker_step / total:.1f} %"),
                ("second", f"{event.elapsed_seconds:.2f}"),
                ("worker", "-" if event.worker is None else str(event.worker)),
                ("took s", "-" if event.seconds is None else f"{event.seconds:.2f}"),
                ("reason", event.reason),
            ]
            for event in record.events
        ],
        {"worker"},
        prose="reason",
    )
