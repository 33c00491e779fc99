"""DDP first, then DiLoCo by torchft: an outer Nesterov step takes the place of the average.

Each process is a replica group of its own. Start it with torchrun; README.md says how.
"""

from __future__ import annotations

from contextlib import ExitStack

import digits
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torchft.local_sgd import DiLoCo
from torchft_local_sgd import replica_group

from syncswitch.trainers.command import switch_step

OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9  # as in the paper, arXiv 2311.08105


def main() -> None:
    """One of the processes."""
    options = digits.read_options(__doc__)
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
                outer = torch.optim.SGD(
                    plain.parameters(), lr=OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True
                )
                stack.enter_context(DiLoCo(manager, [plain], optimizer, outer, options.period))
                model = plain
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()
    digits.end()


if __name__ == "__main__":
    main()
