"""What the examples train: scikit-learn's digits, in processes with digits of their own."""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters

from syncswitch.script import report, seed

Examples = tuple[Tensor, Tensor]
"""Pictures and digits."""

_LEAVING_SECONDS = 0.2

Test = Callable[[int, float], int | None]
"""Takes a step and an accuracy in every process; the step to go back to, None for going on."""

_bytes_per_second = math.inf
_link_seconds: list[float] = []
_other_seconds: list[float] = []


def read_options(text: str | None) -> argparse.Namespace:
    """The command line; the switch and the seed come from syncswitch."""
    parser = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    parser.add_argument("--policy", metavar="FILE", help="for a loop with its switch inside")
    parser.add_argument("--total-steps", type=int, default=400)
    parser.add_argument("--learning-rate", type=float, default=0.3)
    parser.add_argument("--first-decay", type=float, default=50.0, metavar="PERCENT")
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--period", type=int, default=50, help="steps between two averages")
    parser.add_argument("--test-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--shuffled", action="store_true", help="mix the digits of the processes")
    parser.add_argument("--link-mbit", type=float, default=100.0, help="a second; 0: no limit")
    return parser.parse_args()


def begin(options: argparse.Namespace) -> None:
    """Meets the other processes of torchrun; all begin with the same parameters."""
    torch.set_num_threads(1)
    torch.manual_seed(seed())
    dist.init_process_group("gloo")
    _other_seconds.append(training_seconds())
    global _bytes_per_second
    _bytes_per_second = options.link_mbit * 1e6 / 8 or math.inf
    _see_all_reduce()


def end() -> None:
    """Leaves the other processes."""
    # Gloo's threads need Python's lock to drop what they hold of it, and leaving keeps the lock.
    dist.barrier()
    time.sleep(_LEAVING_SECONDS)
    dist.destroy_process_group()


def new_model() -> nn.Module:
    """Below a megabyte: one bucket of DDP's. Gloo may mix up what PowerSGD sends of several."""
    layers = nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    return nn.Sequential(*layers)


def new_optimizer(model: nn.Module, options: argparse.Namespace) -> torch.optim.Optimizer:
    """SGD with momentum."""
    return torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9)


def batches(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    options: argparse.Namespace,
    test: Test | None = None,
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Number of the step, from 1, pictures and digits; tests and reports between the steps.

    What is tested is the mean of all models, which is what the training is for. Tests do not count
    as training time.

    Args:
        module: The model of this process.
        optimizer: Its rate is divided by ten at `--first-decay`, and again halfway to the end.
        options: See `read_options`.
        test: What is done with each test; None for a report to syncswitch.
    """
    test = test or _report
    began = training_seconds()
    (pictures, digits), tested = _read_examples(shuffled=options.shuffled)
    _other_seconds.append(training_seconds() - began)
    order = torch.Generator().manual_seed(1000 * seed() + dist.get_rank())
    first = round(options.total_steps * options.first_decay / 100)
    decays = {first, (first + options.total_steps) // 2}
    step = 0
    while step < options.total_steps:
        step += 1
        rows = torch.randint(len(digits), (options.batch_size,), generator=order)
        yield step, pictures[rows], digits[rows]
        if step in decays:
            for group in optimizer.param_groups:
                group["lr"] /= 10
        if step % options.test_every == 0 or step == options.total_steps:
            began = training_seconds()
            accuracy = _test_accuracy(module, tested)
            _other_seconds.append(training_seconds() - began)
            back = test(step, accuracy)
            step = step if back is None else back
            dist.barrier()


def _report(step: int, accuracy: float) -> None:
    if dist.get_rank() == 0:
        report(step, accuracy, seconds=training_seconds())


def _read_examples(*, shuffled: bool) -> tuple[Examples, Examples]:
    """What this process trains on, and what all are tested on.

    As with files that were written class by class, each process has digits of its own, unless they
    are shuffled. Then its model drifts away from the others' when it trains alone.
    """
    pictures, digits = load_digits(return_X_y=True)
    pictures = (pictures / 16.0).astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(
        pictures, digits, test_size=0.5, random_state=0, stratify=digits
    )
    order = np.arange(len(train_y)) if shuffled else np.argsort(train_y, kind="stable")
    own = np.array_split(order, dist.get_world_size())[dist.get_rank()]
    return (
        (torch.from_numpy(train_x[own]), torch.from_numpy(train_y[own])),
        (torch.from_numpy(test_x), torch.from_numpy(test_y)),
    )


@torch.no_grad()
def _test_accuracy(module: nn.Module, tested: Examples) -> float:
    mean = copy.deepcopy(module)
    average_parameters(mean.parameters(), dist.group.WORLD)
    pictures, digits = tested
    return float((mean(pictures).argmax(1) == digits).float().mean())


def _see_all_reduce() -> None:
    without_link = dist.all_reduce

    def all_reduce(tensor: Tensor, *args: object, **kwargs: object) -> object:
        count_sent(tensor)
        return without_link(tensor, *args, **kwargs)

    dist.all_reduce = all_reduce


def count_sent(tensor: Tensor) -> None:
    """Counts for one all-reduce the time that its bytes would take on a network.

    Processes on one machine share memory, and to leave out what is sent would save nothing.
    """
    # Each process sends and gets 2 (n - 1) / n of it around a ring.
    n = dist.get_world_size()
    sent = 2 * (n - 1) / n * tensor.numel() * tensor.element_size()
    _link_seconds.append(sent / _bytes_per_second)


def training_seconds() -> float:
    """What this process has computed, whoever else uses the machine, and the time of the link."""
    return time.process_time() - sum(_other_seconds) + sum(_link_seconds)
