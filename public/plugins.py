"""What packages extend syncswitch with: trainers, launchers, protocols and strategies.

A subclass of `TrainerChoice` under the entry point group `syncswitch.trainers`, of `SyncProtocol`
under `syncswitch.protocols`; a `Strategy` goes to `syncswitch.BinarySearchSampler`. What they share
with all programs, such as errors, `TrialRecord` and `Observer`, is in `syncswitch` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncswitch._lazy import lazy_names

__all__ = [
    "NOBODY",
    "NO_GPU",
    "SECRET",
    "Address",
    "AfterAverage",
    "ClusterChoice",
    "Decided",
    "Exchange",
    "Job",
    "JobRequest",
    "Launcher",
    "NextTrial",
    "Observation",
    "OptionHint",
    "Part",
    "PartConfig",
    "PhaseRecord",
    "ProcessState",
    "ProcessStatus",
    "ProcessTrainer",
    "ProcessesChoice",
    "Protocols",
    "Release",
    "ReplicaStep",
    "RunConditions",
    "RunEvent",
    "ScheduledJob",
    "Strategy",
    "SyncProtocol",
    "TrainableJob",
    "Trainer",
    "TrainerChoice",
    "TrialSpec",
    "Wait",
    "last_output",
    "option",
    "program",
    "thread_limits",
]

if TYPE_CHECKING:
    from syncswitch.searcher.backends.base import (
        ClusterChoice,
        JobRequest,
        ProcessesChoice,
        TrainableJob,
        TrainerChoice,
        option,
    )
    from syncswitch.searcher.strategies.base import Decided, NextTrial, Strategy, Wait
    from syncswitch.searcher.strategies.observation import Observation
    from syncswitch.storage.errors import OptionHint
    from syncswitch.storage.records.job import Job, Protocols, RunConditions, ScheduledJob
    from syncswitch.storage.records.trial import PhaseRecord, RunEvent, TrialSpec
    from syncswitch.trainers.cluster.exchange.parts import SECRET, PartConfig, program
    from syncswitch.trainers.cluster.exchange.security import Address, Part
    from syncswitch.trainers.cluster.members.launcher import (
        Launcher,
        ProcessState,
        ProcessStatus,
        last_output,
    )
    from syncswitch.trainers.cluster.processes.this_machine import NO_GPU, thread_limits
    from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer
    from syncswitch.trainers.protocols.base import (
        NOBODY,
        AfterAverage,
        Exchange,
        Release,
        ReplicaStep,
        SyncProtocol,
    )
    from syncswitch.trainers.trainer import Trainer
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        {
            "searcher.backends.base": "ClusterChoice JobRequest ProcessesChoice TrainableJob"
            " TrainerChoice option",
            "searcher.strategies.base": "Decided NextTrial Strategy Wait",
            "searcher.strategies.observation": "Observation",
            "storage.errors": "OptionHint",
            "storage.records.job": "Job Protocols RunConditions ScheduledJob",
            "storage.records.trial": "PhaseRecord RunEvent TrialSpec",
            "trainers.cluster.exchange.parts": "PartConfig SECRET program",
            "trainers.cluster.exchange.security": "Address Part",
            "trainers.cluster.members.launcher": "Launcher ProcessState ProcessStatus last_output",
            "trainers.cluster.processes.this_machine": "NO_GPU thread_limits",
            "trainers.cluster.processes.trainer": "ProcessTrainer",
            "trainers.protocols.base": "AfterAverage Exchange NOBODY Release ReplicaStep"
            " SyncProtocol",
            "trainers.trainer": "Trainer",
        },
    )
    del __all__  # what can be imported here, `__getattr__` says
