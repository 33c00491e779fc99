"""Local SGD in PyTorch after a switch: what it costs four small jobs, and how early it may begin.

    python -m benchmarks.pytorch_local_sgd [--jobs gpt gpt-sources digits friedman]
        [--percents 75 50 25 12.5 6.25] [--periods 16 4] [--ways averaged:0] [--seeds 8]
        [--steps 300]

Two language models with AdamW, those of `benchmarks.panel`, a network of convolutions with SGD, and
one that is judged by its mean absolute error, with Adam; 8 processes, which are replicas here, all
computed at once in one process. Up to the switch they share the mean gradient, after it they do
what `syncswitch.trainers.pytorch.LocalSgd` does. A way is what becomes of the optimizer's state at
an average, and the factor on the rate after the switch, where 0 is what `LocalSgd` takes: the root
of the number of processes with Adam and the like, and 1 with SGD. Kept: runs that end at most 0.01
below the mean accuracy of BSP; an error may be as much higher than its mean as runs of BSP
themselves differ by chance (`measured_threshold`, from 3 seeds on). Exchanged: the share of the
steps after which the processes exchange gradients or models.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from benchmarks.console import at_most, new_table, parser
from benchmarks.panel_jobs import LETTERS, OPEN, UNSEEN
from syncswitch.searcher.strategies.baseline import measured_threshold
from syncswitch.trainers.workloads import digits

PROCESSES, LENGTH, WARM_UP = 8, 24, 0.1
THRESHOLD = 0.01


class Job(NamedTuple):
    """A job; its rate is that of the batch of all processes.

    Attributes:
        model: Builds the model.
        data: Loads inputs and labels of the training set, and of the test set.
        optimizer: Makes it of the parameters.
        rate: The highest; it rises from 0, then falls with a cosine to a twentieth.
        batch: Examples of one process.
        loss: Of outputs and labels.
        value: What a run is judged by: higher is better, so an error is negative.
        clips: Whether the norm of gradients is at most 1.
    """

    model: Callable[[], nn.Module]
    data: Callable[[], tuple[Tensor, Tensor, Tensor, Tensor]]
    optimizer: Callable[..., torch.optim.Optimizer]
    rate: float
    batch: int
    loss: Callable[[Tensor, Tensor], Tensor]
    value: Callable[[Tensor, Tensor], float]
    clips: bool = False


class Block(nn.Module):
    """A transformer block that normalizes first."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.register_buffer("later", torch.triu(torch.full((LENGTH, LENGTH), -1e9), 1))

    def forward(self, hidden: Tensor) -> Tensor:
        shape = *hidden.shape[:2], self.heads, hidden.shape[2] // self.heads
        parts = self.asked(self.before(hidden)).chunk(3, -1)
        query, key, value = (one.view(shape).transpose(1, 2) for one in parts)
        scores = query @ key.transpose(2, 3) / math.sqrt(shape[3]) + self.later
        found = scores.softmax(-1) @ value
        hidden = hidden + self.joined(found.transpose(1, 2).reshape(hidden.shape))
        return hidden + self.narrow(functional.gelu(self.wide(self.between(hidden))))


class Gpt(nn.Module):
    """Predicts the next letter at each place."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        nn.init.uniform_(self.letters.weight, -0.05, 0.05)
        self.places = nn.Parameter(0.05 * torch.randn(LENGTH, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.last, self.output = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, given: Tensor) -> Tensor:
        hidden = self.blocks(self.letters(given) + self.places)
        return self.output(self.last(hidden))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 16, 10),
    )  # fmt: skip


def plain() -> nn.Module:
    return nn.Sequential(
        nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
    )


def of_panel(name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The data of a job of the panel."""
    (data,) = (one.workload.load_data() for one in (*OPEN, *UNSEEN) if one.workload.name == name)
    return tensors(data)


def tensors(data: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs and labels of both sets."""

    def one(values: Any) -> Tensor:
        kind = np.int64 if np.issubdtype(values.dtype, np.integer) else np.float32
        return torch.from_numpy(values.astype(kind))

    test = one(data.test_inputs), one(data.test_labels)
    return one(data.train_inputs), one(data.train_labels), *test


def pictures() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    train, labels, test, test_labels = tensors(digits.workload.load_data())
    return train.movedim(3, 1), labels, test.movedim(3, 1), test_labels


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), labels.reshape(-1))


def accuracy(outputs: Tensor, labels: Tensor) -> float:
    return float((outputs.argmax(-1) == labels).float().mean())


def squared(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.mse_loss(outputs[..., 0], labels)


def less_error(outputs: Tensor, labels: Tensor) -> float:
    return -float((outputs[..., 0] - labels).abs().mean())


_adamw = partial(torch.optim.AdamW, weight_decay=0.01)
# The language models: the best rate for BSP of 1, 2.83 and 8 times that of a worker in the panel.
JOBS = {
    "gpt": Job(partial(Gpt, 32, 2), partial(of_panel, "gpt"), _adamw, 0.0085, 16,
               cross_entropy, accuracy, clips=True),
    "gpt-sources": Job(partial(Gpt, 24, 1), partial(of_panel, "gpt-sources"), _adamw, 0.016, 16,
                       cross_entropy, accuracy),
    "digits": Job(convolutions, pictures, partial(torch.optim.SGD, momentum=0.9), 0.1, 16,
                  cross_entropy, accuracy),
    "friedman": Job(plain, partial(of_panel, "friedman"), torch.optim.Adam, 0.02, 16,
                    squared, less_error),
}  # fmt: skip


def rate_at(job: Job, step: int, steps: int) -> float:
    """Rises from 0, then falls with a cosine to a twentieth."""
    warm = int(WARM_UP * steps)
    if step < warm:
        return job.rate * step / warm
    share = (step - warm) / (steps - warm)
    return job.rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))


def batches_of(examples: int, size: int, seed: int) -> Iterator[Tensor]:
    """The places of the examples of each batch; without end."""
    random = np.random.default_rng(seed)
    while True:
        order = torch.from_numpy(random.permutation(examples))
        yield from order[: examples // size * size].split(size)


class Replicas:
    """The models of one or several processes: the first dimension of each parameter.

    Optimizers work element by element, so that one serves all.
    """

    def __init__(self, job: Job, parameters: Mapping[str, Tensor]) -> None:
        self.job, self.parameters = job, dict(parameters)
        self.optimizer = job.optimizer(list(self.parameters.values()), lr=job.rate)

    def copied(self, count: int) -> Replicas:
        """So many copies of a single one, with the state of its optimizer."""

        def copies(one: Tensor) -> Tensor:
            return one.expand(count, *one.shape[1:]).clone()

        made = Replicas(self.job, {name: copies(one) for name, one in self.parameters.items()})
        for name, parameter in self.parameters.items():
            for what, value in self.optimizer.state[parameter].items():
                own = copies(value) if value.shape == parameter.shape else value.clone()
                made.optimizer.state[made.parameters[name]][what] = own
        return made

    def step(self, gradients: Mapping[str, Tensor], rate: float) -> None:
        """Each takes a step with its gradient."""
        if self.job.clips:
            squares = (one.square().flatten(1).sum(1) for one in gradients.values())
            factors = (1 / (sum(squares).sqrt() + 1e-6)).clamp(max=1)
            gradients = {
                name: one * factors.view(-1, *[1] * (one.dim() - 1))
                for name, one in gradients.items()
            }
        for name, parameter in self.parameters.items():
            parameter.grad = gradients[name]
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()

    def average(self, *, keeps_state: bool) -> None:
        """Gives all the mean model, and the mean state of the optimizer unless each keeps its."""
        for parameter in self.parameters.values():
            state = {} if keeps_state else self.optimizer.state[parameter]
            for one in (parameter, *state.values()):
                if one.shape == parameter.shape:
                    one.copy_(one.mean(0, keepdim=True).expand_as(one))

    def rate_factor(self) -> float:
        """What `LocalSgd` takes the rate times."""
        state = next(iter(self.optimizer.state.values()))
        return math.sqrt(PROCESSES) if "exp_avg_sq" in state else 1.0


def trained(
    job: Job, data: Sequence[Tensor], steps: int, switch: int, way: str, period: int, seed: int
) -> float:
    """Trains, and returns the value; `way` is as on the command line."""
    kind, factor = way.split(":")
    inputs, labels, test_inputs, test_labels = data
    batches = batches_of(len(inputs), job.batch, seed)
    torch.manual_seed(seed)
    model = job.model()

    def loss_of(parameters: Mapping[str, Tensor], given: Tensor, wanted: Tensor) -> Tensor:
        return job.loss(functional_call(model, dict(parameters), (given,)), wanted)

    gradients_of = vmap(grad(loss_of))
    replicas = Replicas(job, {name: one.detach()[None] for name, one in model.named_parameters()})
    raised = 1.0
    for step in range(steps):
        places = torch.stack([next(batches) for _ in range(PROCESSES)])
        if step == switch:
            raised = float(factor) or replicas.rate_factor()
            replicas = replicas.copied(PROCESSES)
        if step < switch:
            places = places.reshape(1, -1)
        gradients = gradients_of(replicas.parameters, inputs[places], labels[places])
        replicas.step(gradients, raised * rate_at(job, step, steps))
        if step >= switch and ((step + 1 - switch) % period == 0 or step + 1 == steps):
            replicas.average(keeps_state=kind == "kept")
    first = {name: one[0] for name, one in replicas.parameters.items()}
    with torch.no_grad():
        return job.value(functional_call(model, first, (test_inputs,)), test_labels)


def least_kept(job: Job, base: Sequence[float]) -> float:
    """The value from which on a run keeps that of BSP."""
    allowed = THRESHOLD
    if job.value is less_error:
        allowed = (measured_threshold(base, runs=len(base)) or 0.0) if base[2:] else 0.0
    return statistics.fmean(base) - allowed - 1e-9


def rows_of(name: str, given: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """The rows of a job: BSP, then each switch point, period and way."""
    job, data = JOBS[name], JOBS[name].data()

    def values(percent: float, period: int, way: str) -> list[float]:
        switch = round(given.steps * percent / 100)
        return [
            trained(job, data, given.steps, switch, way, period, seed)
            for seed in range(given.seeds)
        ]

    base = values(100.0, 1, "kept:1")
    least = least_kept(job, base)

    def row(found: Sequence[float], share: float, *words: str) -> tuple[str, ...]:
        deviation = f"{statistics.stdev(found):.4f}" if found[1:] else "-"
        kept = f"{sum(one >= least for one in found)} of {len(found)}"
        return name, *words, f"{abs(statistics.fmean(found)):.4f}", deviation, kept, f"{share:.2f}"

    yield row(base, 1.0, "", "", "BSP")
    for percent, period, way in product(given.percents, given.periods, given.ways):
        share = percent / 100 + (1 - percent / 100) / period
        yield row(values(percent, period, way), share, f"{percent:g} %", str(period), way)


def main() -> None:
    options = parser(
        __doc__, jobs=list(JOBS), percents=[75.0, 50.0, 25.0, 12.5, 6.25], periods=[16, 4],
        ways=["averaged:0"], seeds=8, steps=300,
    )  # fmt: skip
    given = options.parse_args()
    torch.set_num_threads(1)
    columns = ("job", "switch", "period", "way", "value", "deviation", "kept", "exchanged")
    table = new_table(*columns, left=4)
    with at_most(24 * 3600):
        for name in given.jobs:
            for row in rows_of(name, given):
                table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
