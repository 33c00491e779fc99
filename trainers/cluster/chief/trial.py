"""A trial under way, and the backups from which it goes on with another cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from syncswitch.storage.records.trial import RunEvent, TrialSpec
from syncswitch.trainers.cluster.chief.clock import LostChief, TrainingClock
from syncswitch.trainers.cluster.chief.fault_injector import FaultInjector
from syncswitch.trainers.cluster.exchange.shards import Undone
from syncswitch.trainers.cluster.members.cluster import Cluster
from syncswitch.trainers.faults.active import ActiveInjections
from syncswitch.trainers.faults.grammar import parse_injection
from syncswitch.trainers.faults.scenario import check_injections
from syncswitch.trainers.job.hyperparameters import Configuration
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.run.record import Position
from syncswitch.trainers.stragglers.online import OnlineController, controller_of


@dataclass(frozen=True)
class Backup:
    """From where a run goes on when the parameter server is lost.

    Attributes:
        state: State of the training.
        mark: Position of the run then.
        undone: Worker-steps that are not in the state, though later ones are.
    """

    state: ModelState
    mark: Position
    undone: Undone = field(default_factory=dict)


@dataclass
class ClusterTrial:
    """One trial on as many clusters as it takes.

    Attributes:
        spec: What was asked for.
        log: The log of the run, which knows where it is.
        clock: Its training time.
        configuration: Rates and momenta.
        fault_injector: Carries out the disturbances asked for.
        controller: Decides about stragglers; None for nobody.
        backup: The newest backup.
        switch_state: To which its guard goes back; None without one, and before the switch.
    """

    spec: TrialSpec
    log: RunLog
    clock: TrainingClock
    configuration: Configuration
    fault_injector: FaultInjector
    controller: OnlineController | None
    backup: Backup | None = None
    switch_state: ModelState | None = None


def cluster_trial(
    spec: TrialSpec,
    log: RunLog,
    configuration: Configuration,
    cluster: Cluster,
    lost: LostChief | None,
) -> ClusterTrial:
    """The trial from where its log is."""
    elapsed_seconds = log.elapsed_seconds
    if lost is not None:
        elapsed_seconds = max(elapsed_seconds, lost.now_seconds)
        log.add_event(RunEvent("lost", lost.worker_step, elapsed_seconds, lost.reason))
    found = [parse_injection(text) for text in spec.conditions.injections]
    check_injections(found, cluster.kind, len(cluster.servers))
    active = ActiveInjections(
        found,
        spec.identity.total_worker_steps,
        done=log.done,
        now_seconds=elapsed_seconds,
        resumed=spec.resume,
    )
    return ClusterTrial(
        spec,
        log,
        TrainingClock(elapsed_seconds),
        configuration,
        FaultInjector(active, cluster),
        controller_of(spec.conditions.online, range(spec.identity.workers)),
    )
