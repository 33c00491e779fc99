"""Whole gradients first, then compressed ones: PyTorch's PowerSGD from a step on.

`powerSGD_hook`, after Vogels et al., PowerSGD (NeurIPS 2019). Start it with torchrun; README.md
says how.
"""

from __future__ import annotations

import digits
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from syncswitch.script import switch_step

_FIRST_STEP = 2  # DDP orders its gradients anew in the first step


def main() -> None:
    """One of the processes."""
    options = digits.read_options(__doc__)
    digits.begin(options)
    start = max(_FIRST_STEP, switch_step(default=options.total_steps))
    model = DistributedDataParallel(digits.new_model())
    state = PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=start)
    model.register_comm_hook(state, powerSGD_hook)
    optimizer = digits.new_optimizer(model, options)
    for _, pictures, labels in digits.batches(model.module, optimizer, options):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
    digits.end()


if __name__ == "__main__":
    main()
