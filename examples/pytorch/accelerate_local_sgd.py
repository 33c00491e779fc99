"""DDP first, then local SGD by Hugging Face's Accelerate: its `LocalSGD` begins at a step.

Start it with torchrun; README.md says how.
"""

from __future__ import annotations

from contextlib import ExitStack

import digits
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from syncswitch.script import switch_step


def main() -> None:
    """One of the processes."""
    options = digits.read_options(__doc__)
    digits.begin(options)
    start = switch_step(default=options.total_steps)
    accelerator = Accelerator(cpu=True)
    plain = digits.new_model()
    model, optimizer = accelerator.prepare(plain, digits.new_optimizer(plain, options))
    model.register_comm_hook(None, allreduce_hook)  # as without it, where the link sees it
    with ExitStack() as stack:
        local = None
        for step, pictures, labels in digits.batches(plain, optimizer, options):
            if step == start + 1:
                local = stack.enter_context(LocalSGD(accelerator, model, options.period))
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(pictures), labels))
            optimizer.step()
            if local is not None:
                local.step()
    digits.end()


if __name__ == "__main__":
    main()
