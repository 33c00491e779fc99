"""Updates that several parameter servers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.members.cluster import Cluster
from syncswitch.trainers.cluster.members.connected import ConnectedCluster
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.protocols import Exchange
from tests.trainers.cluster.members.cluster_contract import assert_same, fresh, step
from tests.trainers.jobs import BRIEF, normalized_model


def nadam() -> Any:
    from keras import optimizers

    # With a scalar of its own, and a norm of each variable.
    return optimizers.Nadam(0.01, clipnorm=0.1, weight_decay=0.01, use_ema=True)


def clipped() -> Any:
    from keras import optimizers

    return optimizers.SGD(global_clipnorm=1.0)


def secretive() -> Any:
    from keras import optimizers

    class Secretive(optimizers.SGD):
        def build(self, variables: Any) -> None:
            super().build(variables)
            self.history = self.add_variable((5,), name="history")

    return Secretive()


class TestUpdates:
    @pytest.mark.parametrize(
        ("optimizer", "servers"), [(None, 3), (nadam, 2)], ids=["momentum", "nadam"]
    )
    def test_do_not_depend_on_how_many_share_them(
        self,
        threads_of: Callable[..., Cluster],
        connected_of: Callable[..., ConnectedCluster],
        optimizer: Any,
        servers: int,
    ) -> None:
        """With BSP, to the last bit, statistics included."""
        workload = replace(BRIEF, name="shared", model=normalized_model, optimizer=optimizer)
        shared = connected_of(workload, 2, servers=servers)
        states = []
        for cluster in (threads_of(workload, 2), shared):
            fresh(cluster)
            for first in range(0, 10, 2):
                for worker in range(2):
                    step(cluster, worker, first + worker, Exchange.ROUND)
                cluster.apply_round([0, 1], 0.05, 0.9)
            states.append(cluster.state())
        assert_same(*states)
        assert all(shard.sizes.parameters for shard in shared._shards)

    @pytest.mark.parametrize(
        ("optimizer", "words"),
        [
            (clipped, "SGD with global_clipnorm needs the norm of the whole gradient"),
            (secretive, "Secretive does not say to which parameters"),
        ],
    )
    def test_that_need_all_in_one_place_are_refused(self, optimizer: Any, words: str) -> None:
        workload = replace(BRIEF, optimizer=optimizer)
        program = Program(workload, workload.load_data())
        assert len(program.shards(1)) == 1
        with pytest.raises(UserError, match=f"--parameter-servers is 2, .* {words}") as caught:
            program.shards(2)
        assert "\n" not in str(caught.value)
