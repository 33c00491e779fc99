"""What outlives the cluster that trains a trial."""

from __future__ import annotations

from dataclasses import dataclass

from syncswitch.storage.records.trial import RunEvent, TrialSpec
from syncswitch.trainers.cluster.chief.backups import Backup
from syncswitch.trainers.cluster.chief.clock import LostChief, TrainingClock
from syncswitch.trainers.cluster.chief.fault_injector import FaultInjector
from syncswitch.trainers.cluster.members.cluster import Cluster
from syncswitch.trainers.faults.active import ActiveInjections
from syncswitch.trainers.faults.grammar import parse_injection
from syncswitch.trainers.faults.scenario import check_injections
from syncswitch.trainers.job.hyperparameters import Configuration
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.stragglers.online import OnlineController, controller_of


@dataclass
class ClusterTrial:
    """One trial on as many clusters as it takes.

    Attributes:
        spec: What was asked for.
        log: Where it is.
        clock: Its training time.
        configuration: Rates and momenta.
        fault_injector: Made on purpose.
        controller: Decides about stragglers; None for nobody.
        backup: The newest.
    """

    spec: TrialSpec
    log: RunLog
    clock: TrainingClock
    configuration: Configuration
    fault_injector: FaultInjector
    controller: OnlineController | None
    backup: Backup | None = None


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
    check_injections(found, cluster.kind)
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
