"""DDP first, then local SGD by torchft, PyTorch's library for trainings that lose processes.

Each process is a replica group of its own. Start it with torchrun; README.md says how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta

import digits
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.local_sgd import LocalSGD

from syncswitch.script import switch_step

_HERE = "127.0.0.1"


class CountedManager(Manager):
    """One whose averages the link sees; they pass `dist.all_reduce` by."""

    def allreduce(self, tensor: Tensor, *args: object, **kwargs: object) -> object:
        """As `Manager` does it."""
        digits.count_sent(tensor)
        return super().allreduce(tensor, *args, **kwargs)


def main() -> None:
    """One of the processes."""
    train(LocalSGD, __doc__)


SecondWay = Callable[[Manager, nn.Module, Optimizer, int], AbstractContextManager[object]]


def train(second_way: SecondWay, description: str | None) -> None:
    """DDP up to the switch, then what the second way makes of the same model and optimizer."""
    options = digits.read_options(description)
    digits.begin(options)
    start = switch_step(default=options.total_steps)
    plain = digits.new_model()
    optimizer = digits.new_optimizer(plain, options)
    model = DistributedDataParallel(plain)
    model.register_comm_hook(None, allreduce_hook)  # as without it, where the link sees it
    with ExitStack() as stack:
        for step, pictures, labels in digits.batches(plain, optimizer, options):
            if step == start + 1:
                manager = stack.enter_context(replica_group(plain))
                stack.enter_context(second_way(manager, plain, optimizer, options.period))
                model = plain
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()
    digits.end()


@contextmanager
def replica_group(model: nn.Module) -> Iterator[Manager]:
    """This process as a replica group, which finds the others by a lighthouse in the first one."""
    processes, rank = dist.get_world_size(), dist.get_rank()
    lighthouse = LighthouseServer(f"{_HERE}:0", processes) if rank == 0 else None
    box = [lighthouse.address() if lighthouse else None]
    dist.broadcast_object_list(box)
    store = dist.TCPStore(_HERE, 0, is_master=True, wait_for_workers=False)
    manager = CountedManager(
        ProcessGroupGloo(timeout=timedelta(seconds=60)),
        load_state_dict=model.load_state_dict,
        state_dict=model.state_dict,
        min_replica_size=processes,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr=_HERE,
        store_port=store.port,
        lighthouse_addr=box[0],
        replica_id=str(rank),
        hostname=_HERE,
        init_sync=False,
    )
    try:
        yield manager
    finally:
        dist.barrier()
        manager.shutdown(wait=False)
        if lighthouse is not None:
            lighthouse.shutdown()


if __name__ == "__main__":
    main()
