"""DDP first, then post-local SGD: each process trains a model of its own, averaged now and then.

PyTorch's `post_localSGD_hook` and `PostLocalSGDOptimizer`, after Lin et al., Don't Use Large
Mini-Batches, Use Local SGD (ICLR 2020). Start it with torchrun; README.md says how.
"""

from __future__ import annotations

import digits
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

from syncswitch.script import switch_step


def main() -> None:
    """One of the processes."""
    options = digits.read_options(__doc__)
    digits.begin(options)
    start = switch_step(default=options.total_steps)
    model = DistributedDataParallel(digits.new_model())
    state = PostLocalSGDState(None, None, start, post_local_gradient_allreduce=False)
    model.register_comm_hook(state, post_localSGD_hook)
    averager = PeriodicModelAverager(period=options.period, warmup_steps=start)
    optimizer = PostLocalSGDOptimizer(digits.new_optimizer(model, options), averager)
    for _, pictures, labels in digits.batches(model.module, optimizer, options):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
    digits.end()


if __name__ == "__main__":
    main()
