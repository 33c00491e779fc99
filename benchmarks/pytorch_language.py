"""Local SGD in PyTorch with AdamW: what it costs two small language models, and what helps.

    python -m benchmarks.pytorch_language [--jobs gpt gpt-sources] [--percents 25] [--periods 16 4]
        [--ways kept:1 averaged:1 averaged:2.83] [--seeds 2] [--steps 300]

The two of `benchmarks.panel`, written in PyTorch, with warm-up, cosine and, for `gpt`, clipping;
8 processes of a batch of 16 each, which are replicas here, one after the other in one process. Up
to the switch they share the mean gradient, after it they do what
`syncswitch.trainers.pytorch.LocalSgd` does. A way is what becomes of the optimizer at an average,
and the factor on the rate after the switch. Accuracies are those of the next letter.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.console import at_most, new_table, parser
from benchmarks.panel_jobs import LETTERS, OPEN, UNSEEN

PROCESSES, BATCH, LENGTH, WARM_UP = 8, 16, 24, 0.1


class Job(NamedTuple):
    """A language model; its rate is that of the batch of all processes."""

    width: int
    blocks: int
    rate: float
    clips: bool


# The best for BSP of 1, 2.83 and 8 times the rate of a worker in the panel.
JOBS = {"gpt": Job(32, 2, 0.0085, True), "gpt-sources": Job(24, 1, 0.016, False)}


class Block(nn.Module):
    """A transformer block that normalizes first."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        shape = *hidden.shape[:2], self.heads, hidden.shape[2] // self.heads
        parts = self.asked(self.before(hidden)).chunk(3, -1)
        query, key, value = (one.view(shape).transpose(1, 2) for one in parts)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.joined(found.transpose(1, 2).reshape(hidden.shape))
        return hidden + self.narrow(functional.gelu(self.wide(self.between(hidden))))


class Gpt(nn.Module):
    """Predicts the next letter at each place."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, job.width)
        nn.init.uniform_(self.letters.weight, -0.05, 0.05)
        self.places = nn.Parameter(0.05 * torch.randn(LENGTH, job.width))
        self.blocks = nn.Sequential(*(Block(job.width) for _ in range(job.blocks)))
        self.last, self.output = nn.LayerNorm(job.width), nn.Linear(job.width, LETTERS)

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.blocks(self.letters(given) + self.places)
        return self.output(self.last(hidden))


class Replica:
    """The model of one process and its optimizer."""

    def __init__(self, job: Job, model: nn.Module, state: dict[str, Any] | None = None) -> None:
        self.job, self.model = job, model
        self.parameters = list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, weight_decay=0.01)
        if state is not None:
            self.optimizer.load_state_dict(copy.deepcopy(state))

    def step(self, batches: Sequence[Tensor], rate: float) -> None:
        """Takes a step with the mean gradient of some batches."""
        self.optimizer.zero_grad()
        for batch in batches:
            guessed = self.model(batch[:, :-1]).reshape(-1, LETTERS)
            loss = functional.cross_entropy(guessed, batch[:, 1:].reshape(-1))
            (loss / len(batches)).backward()
        if self.job.clips:
            nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()


@torch.no_grad()
def average(replicas: Sequence[Replica], *, is_kept: bool) -> None:
    for group in zip(*(one.parameters for one in replicas), strict=True):
        together: list[Sequence[Tensor]] = [group]
        if not is_kept:
            states = [one.optimizer.state[own] for one, own in zip(replicas, group, strict=True)]
            together += [[one[name] for one in states] for name in ("exp_avg", "exp_avg_sq")]
        for tensors in together:
            mean = torch.stack(list(tensors)).mean(0)
            for one in tensors:
                one.copy_(mean)


def rate_at(job: Job, step: int, steps: int) -> float:
    """Rises from 0, then falls with a cosine to a twentieth."""
    warm = int(WARM_UP * steps)
    if step < warm:
        return job.rate * step / warm
    share = (step - warm) / (steps - warm)
    return job.rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))


def batches_of(train: Tensor, seed: int) -> Iterator[Tensor]:
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(len(train))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            yield train[order[start : start + BATCH]]


def letters_of(name: str) -> tuple[Tensor, Tensor]:
    """The pieces of text that a job trains on and those of its test, a letter longer than read."""
    (data,) = (one.workload.load_data() for one in (*OPEN, *UNSEEN) if one.workload.name == name)

    def joined(inputs: Any, labels: Any) -> Tensor:
        return torch.from_numpy(np.concatenate([inputs, labels[:, -1:]], 1).astype(np.int64))

    return (
        joined(data.train_inputs, data.train_labels),
        joined(data.test_inputs, data.test_labels),
    )


def accuracy(
    job: Job, data: tuple[Tensor, Tensor], steps: int, switch: int, way: str, period: int, seed: int
) -> float:
    """Trains; `way` is as on the command line."""
    kind, factor = way.split(":")
    train, test = data
    batches = batches_of(train, seed)
    torch.manual_seed(seed)
    replicas = [Replica(job, Gpt(job))]
    for step in range(steps):
        own = [next(batches) for _ in range(PROCESSES)]
        rate = rate_at(job, step, steps)
        if step < switch:
            replicas[0].step(own, rate)
            continue
        if step == switch:
            (shared,) = replicas
            state = shared.optimizer.state_dict()
            replicas = [Replica(job, copy.deepcopy(shared.model), state) for _ in range(PROCESSES)]
        for replica, batch in zip(replicas, own, strict=True):
            replica.step([batch], rate * float(factor))
        if (step + 1 - switch) % period == 0 or step + 1 == steps:
            average(replicas, is_kept=kind == "kept")
    with torch.no_grad():
        guessed = replicas[0].model(test[:, :-1]).argmax(-1)
    return float((guessed == test[:, 1:]).float().mean())


def main() -> None:
    options = parser(
        __doc__,
        jobs=list(JOBS),
        percents=[25.0],
        periods=[16, 4],
        ways=["kept:1", "averaged:1", "averaged:2.83"],
        seeds=2,
        steps=300,
    )
    given = options.parse_args()
    torch.set_num_threads(1)
    table = new_table("job", "switch", "period", "way", "accuracy", left=4)

    def mean(name: str, percent: float, period: int, way: str) -> str:
        switch = round(given.steps * percent / 100)
        find = partial(accuracy, JOBS[name], letters_of(name), given.steps, switch, way, period)
        return f"{statistics.fmean(map(find, range(given.seeds))):.4f}"

    with at_most(24 * 3600):
        for name in given.jobs:
            table.add_row(name, "", "", "BSP", mean(name, 100.0, 1, "kept:1"))
            for percent, period, way in product(given.percents, given.periods, given.ways):
                found = mean(name, percent, period, way)
                table.add_row(name, f"{percent:g} %", str(period), way, found)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
