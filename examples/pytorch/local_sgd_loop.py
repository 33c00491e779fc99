"""Whole gradients first, then local SGD, in a loop that has its switch inside.

Start it with torchrun; `--policy` names a policy file. README.md says how.
"""

from __future__ import annotations

import digits
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters

from syncswitch import LoopSwitch
from syncswitch.script import seed


def main() -> None:
    """One of the processes."""
    options = digits.read_options(__doc__)
    digits.begin(options)
    model = digits.new_model()
    optimizer = digits.new_optimizer(model, options)
    switch = LoopSwitch(
        options.policy, seed=seed(), keeps=[model, optimizer], clock=digits.training_seconds
    )
    for step, pictures, labels in digits.batches(model, optimizer, options, switch.test):
        is_local = switch.is_second(step - 1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), labels).backward()
        if not is_local:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
        optimizer.step()
        if is_local and step % options.period == 0:
            average_parameters(model.parameters(), dist.group.WORLD)
    digits.end()


if __name__ == "__main__":
    main()
