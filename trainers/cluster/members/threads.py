"""A cluster inside this process."""

from __future__ import annotations

import os
import threading

from typing_extensions import override

from syncswitch.trainers.cluster.exchange.parameter_server import ParameterServer
from syncswitch.trainers.cluster.exchange.plans import Caller
from syncswitch.trainers.cluster.exchange.vectors import aligned
from syncswitch.trainers.cluster.exchange.worker import Worker
from syncswitch.trainers.cluster.members.cluster import Cluster
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.model.embeddings import EmbeddingServers
from syncswitch.trainers.model.feed import Feed, HeldFeed, feed_of
from syncswitch.trainers.model.tensorflow_api import for_threads


class ThreadsCluster(Cluster):
    """A cluster whose workers run in the threads that call them; nothing is sent anywhere.

    Its workers can only be lost on purpose.
    """

    kind = "in-process"
    has_processes = False

    def __init__(self, program: Program, workers: int) -> None:
        super().__init__(program, workers)
        self._feed: Feed = HeldFeed(())
        # A worker pulls only once it has a core: parameters pulled earlier would grow stale.
        cores = os.cpu_count() or 1
        self._computing = threading.Semaphore(cores)
        self._step = for_threads(program.step, cores)
        self.renew()

    @override
    def renew(self) -> None:
        program, sizes = self.program, self.program.sizes
        # All workers share one copy of the data.
        self._feed.close()
        self._feed = feed_of(program.data.train, program.function.batch_size, len(self.members))
        self._server = ParameterServer(
            sizes,
            len(self.members),
            program.new_update(),
            program.decay,
            lambda: aligned(sizes.model),
            program.form.shard_plan(),
        )
        self.servers = [self._server]
        self.embeddings = EmbeddingServers([self._server.embeddings], program.form.forms)
        for worker in range(len(self.members)):
            self.members[worker] = Worker(
                sizes,
                self._step,
                self._feed,
                aligned(sizes.model),
                program.decay,
                program.new_update,
                self._computing,
                program.embedding_steps,
            )
            self._give_up(worker, 0)

    @override
    def close(self) -> None:
        self._feed.close()
        self._pool.shutdown(wait=False)

    @override
    def _give_up(self, worker: int, incarnation: int) -> None:
        self._member(worker).join(Caller(worker, incarnation), self._server)
