"""Trains on scikit-learn's digits with PyTorch: DDP first, then post-local SGD.

Up to step --start-local-sgd the processes average their gradients in every step. From there on each
trains a model of its own, and every --period steps the models are averaged: PyTorch's
`post_localSGD_hook` and `PostLocalSGDOptimizer`, after Lin et al., Don't Use Large Mini-Batches,
Use Local SGD (ICLR 2020). Start it with torchrun; README.md says how.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

Examples = tuple[Tensor, Tensor]
"""Pictures and digits."""


def main() -> None:
    """One of the processes."""
    options = read_options()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)  # the same first parameters in each
    dist.init_process_group("gloo")
    own, tested = read_examples(shuffled=options.shuffled)
    layers = nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    model = DistributedDataParallel(nn.Sequential(*layers))
    train(model, optimizer_of(model, options), own, tested, options)
    dist.destroy_process_group()


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--start-local-sgd", type=int, required=True, metavar="STEP")
    parser.add_argument("--total-steps", type=int, default=400)
    parser.add_argument("--results", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--period", type=int, default=50)
    parser.add_argument("--learning-rate", type=float, default=0.2)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--test-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--shuffled", action="store_true", help="mix the digits of the processes")
    return parser.parse_args()


def read_examples(*, shuffled: bool) -> tuple[Examples, Examples]:
    """What this process trains on, and what all are tested on.

    As with files that were written class by class, each process has digits of its own, unless they
    are shuffled. Then its model drifts away from the others' when it trains alone.
    """
    pictures, digits = load_digits(return_X_y=True)
    pictures = (pictures / 16.0).astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(
        pictures, digits, test_size=0.33, random_state=0, stratify=digits
    )
    order = np.arange(len(train_y)) if shuffled else np.argsort(train_y, kind="stable")
    own = np.array_split(order, dist.get_world_size())[dist.get_rank()]
    return (
        (torch.from_numpy(train_x[own]), torch.from_numpy(train_y[own])),
        (torch.from_numpy(test_x), torch.from_numpy(test_y)),
    )


def optimizer_of(
    model: DistributedDataParallel, options: argparse.Namespace
) -> PostLocalSGDOptimizer:
    """Shares gradients up to the switch, and models after it."""
    start = options.start_local_sgd
    state = PostLocalSGDState(None, None, start, post_local_gradient_allreduce=False)
    model.register_comm_hook(state, post_localSGD_hook)
    return PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9),
        PeriodicModelAverager(period=options.period, warmup_steps=start),
    )


def train(
    model: DistributedDataParallel,
    optimizer: PostLocalSGDOptimizer,
    own: Examples,
    tested: Examples,
    options: argparse.Namespace,
) -> None:
    """Trains, and writes a line of results after each test; tests do not count as training."""
    W = options.total_steps
    rates = torch.optim.lr_scheduler.MultiStepLR(optimizer.optim, [W // 2, W * 3 // 4])
    pictures, digits = own
    order = torch.Generator().manual_seed(1000 * options.seed + dist.get_rank())
    seconds, began = 0.0, time.perf_counter()
    for step in range(1, W + 1):
        batch = torch.randint(len(digits), (options.batch_size,), generator=order)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pictures[batch]), digits[batch])
        loss.backward()
        optimizer.step()
        rates.step()
        if step % options.test_every == 0 or step == W:
            seconds += time.perf_counter() - began
            accuracy = test_accuracy(model.module, tested)
            if dist.get_rank() == 0:
                report(options.results, step, seconds, accuracy, float(loss))
            dist.barrier()
            began = time.perf_counter()


@torch.no_grad()
def test_accuracy(model: nn.Module, tested: Examples) -> float:
    """Of the mean of all models, which is what the training is for."""
    mean = copy.deepcopy(model)
    average_parameters(mean.parameters(), dist.group.WORLD)
    pictures, digits = tested
    return float((mean(pictures).argmax(1) == digits).float().mean())


def report(path: Path, step: int, seconds: float, accuracy: float, loss: float) -> None:
    """What syncswitch reads while the training goes on."""
    with path.open("a") as results:
        line = {"step": step, "seconds": seconds, "accuracy": accuracy, "loss": loss}
        results.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
