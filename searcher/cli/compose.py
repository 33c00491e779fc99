"""The one place where a search gets its concrete parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncswitch.storage.errors import UserError
from syncswitch.trainers.local import (
    DEFAULT_LAUNCHER,
    LAUNCHERS,
    load_local_workload,
    open_local_trainer,
)
from syncswitch.trainers.protocols import check_protocols
from syncswitch.trainers.recording import REPLAY
from syncswitch.trainers.trial_check import check_length
from syncswitch.trainers.workload import find_module, load_workload

if TYPE_CHECKING:
    from syncswitch.storage.records import WorkloadIdentity
    from syncswitch.trainers.trainer import Trainer

__all__ = [
    "DEFAULT_LAUNCHER",
    "LAUNCHERS",
    "REPLAY",
    "SIMULATED",
    "TRAINERS",
    "Job",
    "compose_local",
    "compose_replay",
    "compose_simulated",
]

SIMULATED = "simulated"


@dataclass(frozen=True)
class Job:
    """What a search needs of the training side.

    Attributes:
        identity: The workload on its cluster.
        open_trainer: Starts the cluster: not before the first run needs it.
        reference: How the workload is loaded, in normal form; None for what the user called it.
    """

    identity: WorkloadIdentity
    open_trainer: Callable[[], Trainer]
    reference: str | None = None


def compose_local(reference: str, workers: int, protocols: tuple[str, str], launcher: str) -> Job:
    """A job on a TensorFlow cluster on this machine.

    Raises:
        UserError: There is no such workload, or so many workers cannot use these protocols.
    """
    check_protocols(protocols, workers)
    workload = load_local_workload(reference, workers)
    identity = workload.identity(workers, *protocols)
    check_length(identity)
    return Job(
        identity=identity,
        open_trainer=lambda: open_local_trainer(workload, reference, workers, launcher),
    )


def compose_simulated(
    reference: str, workers: int, protocols: tuple[str, str], profile_source: str
) -> Job:
    """A job on a virtual clock.

    Args:
        reference: The workload.
        workers: n.
        protocols: Before and after the switch.
        profile_source: Name or file of the cluster's profile.

    Raises:
        UserError: There is no such workload or profile, or so many workers cannot use these
            protocols.
    """
    from syncswitch.trainers.simulated.profile import load_profile

    check_protocols(protocols, workers)
    find_module(reference)
    profile = load_profile(profile_source)
    profile.check_workers(workers, profile_source)
    from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity

    workload = load_workload(reference)
    identity = simulated_identity(workload, workers, protocols, profile)
    check_length(identity)
    return Job(
        identity=identity,
        open_trainer=lambda: SimulatedTrainer(workload, workers, profile),
    )


def compose_replay(
    reference: str,
    workers: int | None,
    protocols: tuple[str, str],
    recordings_url: str,
    storage_url: str,
    seed: int,
) -> Job:
    """A job whose runs are recorded; nothing of the workload is loaded.

    Args:
        reference: Name, reference or start of the fingerprint of the recorded runs' workload.
        workers: Only runs on a cluster of this size.
        protocols: Only runs with these.
        recordings_url: Database of the recorded runs.
        storage_url: Database of the search.
        seed: Of the draws among the recorded runs.

    Raises:
        UserError: There are no such runs, they are of several workloads, or the databases are the
            same.
    """
    from syncswitch.storage.engine import open_database
    from syncswitch.storage.inspection import is_same_database, shown
    from syncswitch.trainers.recording import read_recording
    from syncswitch.trainers.replay import ReplayTrainer

    if is_same_database(recordings_url, storage_url):
        raise UserError(
            f"--recordings and --storage are both {shown(storage_url)}, so replayed runs would"
            " count as measured ones; give the search a database of its own with --storage"
        )
    with open_database(recordings_url, create=False) as database:
        recording = read_recording(database, reference, workers=workers, protocols=protocols)
    return Job(
        identity=recording.identity,
        open_trainer=lambda: ReplayTrainer(recording, deck_seed=seed),
        reference=recording.reference,
    )


TRAINERS: dict[str, Callable[[str, int, tuple[str, str], str], Job]] = {"local": compose_local}
"""What makes a job of a workload's reference, workers, protocols and launcher, by name.

`SIMULATED` and `REPLAY` need other things: see `compose_simulated` and `compose_replay`.
"""
