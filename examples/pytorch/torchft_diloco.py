"""DDP first, then DiLoCo by torchft: an outer Nesterov step takes the place of the average.

Each process is a replica group of its own. Start it with torchrun; README.md says how.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer
from torchft import Manager
from torchft.local_sgd import DiLoCo
from torchft_local_sgd import train

OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9  # as in the paper, arXiv 2311.08105


def diloco(manager: Manager, model: nn.Module, optimizer: Optimizer, period: int) -> DiLoCo:
    """Local steps, and an outer step of what they come to after each period."""
    outer = torch.optim.SGD(
        model.parameters(), lr=OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True
    )
    return DiLoCo(manager, [model], optimizer, outer, period)


if __name__ == "__main__":
    train(diloco, __doc__)
