"""A process that trains for the campaign of failures, and may be killed while it does.

    python -c "from benchmarks.failure_lane import main; main()" SOCKET_FD

It starts a cluster for each launcher and numbers of workers and parameter servers when it is first
asked for one, and keeps it for later runs.
"""

from __future__ import annotations

import faulthandler
import functools
import logging
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.failure_cases import (
    CHECKPOINT_PERCENTS,
    TOTAL_WORKER_STEPS,
    WORKERS,
    Done,
    Error,
    Lane,
    Request,
)
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.storage.errors import RetryableError, SyncSwitchError
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import Evaluation, TrialSpec
from syncswitch.trainers.cluster.local import load_local_workload
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.trainer import Observer, Trainer, Verdict
from syncswitch.trainers.workloads.digits import workload as digits


def model() -> Any:
    """As small as a model can be that still has two layers."""
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((8, 8, 1)),
            layers.Flatten(),
            layers.Dense(24, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


JOB = Workload(
    name="failures",
    model=model,
    data=functools.cache(digits.data),
    data_set="digits",
    total_worker_steps=TOTAL_WORKER_STEPS,
    batch_size=16,
    learning_rate=0.02,
    momentum=0.9,
    learning_rate_boundaries=((TOTAL_WORKER_STEPS * 2 // 3, 0.1),),
    evaluation_interval_worker_steps=TOTAL_WORKER_STEPS // 16,
)
_REFERENCE = "benchmarks.failure_lane:JOB"


def main() -> None:
    """Serves until the other end is gone."""
    faulthandler.enable()
    # Losses with their tracebacks, for whoever looks at the log of a run that went wrong.
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s")
    connection = Connection(int(sys.argv[1]))
    workload = load_local_workload(_REFERENCE, max(WORKERS))
    trainers: dict[Lane, Trainer] = {}
    while True:
        try:
            request: Request = connection.recv()
        except EOFError:
            break
        case = request.case
        if case.lane not in trainers:
            cluster = LocalTrainer(launcher=case.launcher, parameter_servers=case.servers)
            trainers[case.lane] = cluster.open(workload, _REFERENCE, case.workers)
        connection.send(_answer(request, workload, trainers[case.lane], _Reporter(connection)))
    for trainer in trainers.values():
        trainer.close()


def _answer(
    request: Request, workload: Workload, trainer: Trainer, observer: Observer
) -> Done | Error:
    case = request.case
    spec = TrialSpec(
        workload_identity(workload, case.workers, *case.pair),
        case.switch_percent,
        case.seed,
        checkpoint_percents=CHECKPOINT_PERCENTS,
        checkpoint_directory=request.folder,
        conditions=RunConditions(case.online, case.mechanism, case.injections),
        resume=request.resume,
    )
    try:
        record = trainer.train(spec, observer)
    except SyncSwitchError as error:
        traceback.print_exc()
        return Error(f"{type(error).__name__}: {error}", isinstance(error, RetryableError))
    names = [thread.name for thread in threading.enumerate()]
    left = [name for name in names if name == "watchdog" or name.startswith("worker-")]
    return Done(record, left)


class _Reporter(Observer):
    """Sends worker-steps, for the campaign to act upon."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def on_progress(self, worker_step: int) -> None:
        with self._sending:
            self._connection.send(worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        self.on_progress(evaluation.worker_step)
        return Verdict.CONTINUE
