"""The trainer whose chief is a driver on a Ray cluster."""

from __future__ import annotations

from typing_extensions import override

from syncswitch.trainers.cluster.processes.chief_plan import ChiefPlan
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
from syncswitch.trainers.cluster.ray.options import RayOptions


class RayTrainer(ProcessTrainer):
    """Trains on actors of a Ray cluster.

    Args:
        reference: The workload, as `load_workload` takes it; the chief alone loads it.
        workers: n.
        options: Where, and what each part is to have.

    Raises:
        UserError: Ray is not installed, there is no such cluster, it is too small, or the workload
            cannot be loaded.
        RetryableError: Others use the cluster, or it loses a part that starts.
    """

    # A part that is placed on another node has to find one, and to import TensorFlow there.
    least_patience_seconds = 300.0

    def __init__(self, reference: str, workers: int, options: RayOptions) -> None:
        options.check()
        self._options = options
        super().__init__(reference, workers)

    @override
    def plan(self, folder: str) -> ChiefPlan:
        engine = "syncswitch.trainers.cluster.ray.engine:new_engine"
        return ChiefPlan(self._reference, self._workers, engine, self._options, folder)
