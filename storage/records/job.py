"""The job: its workload, the size of the cluster, the conditions of a run, and its searches."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Annotated, Any

from syncswitch.storage.records.digest import digest_of
from syncswitch.storage.records.flat import flat, nested
from syncswitch.storage.records.limits import CLUSTER, COUNT, DIGEST, LENGTH, NAME
from syncswitch.storage.records.metric import DescribedMetric, Metric

"""The largest integer that an integer column holds in every database."""

MOST_WORKER_STEPS = 10**15
"""The length of the longest job: every column holds it, and floats count up to it exactly."""

LARGEST_SEED = 2**31 - 1
"""The largest seed of a run: every library that takes a seed takes this one."""

USUAL_WORKERS = 4
"""The size of a cluster where nobody says it."""

USUAL_PROTOCOLS = "bsp,asp"
"""The protocols of a cluster where nobody says them."""

OWN_MOMENTUM = "own"
"""The rule of the second protocol with which each worker keeps its own momentum."""

OWN_OPTIMIZER = "own-optimizer"
"""The same for Adam and its like: each worker has an optimizer of its own, and steers its rate."""

OWN_RULES = frozenset({OWN_MOMENTUM, OWN_OPTIMIZER})
"""The rules with which workers share parameters alone."""

SEMI_SYNC = "semi-sync"
"""The rule of local SGD whose period is counted over all workers: momenta are averaged."""

EARLY_RULES = OWN_RULES | {SEMI_SYNC}
"""The rules with which recorded jobs bear an early switch."""


@dataclass(frozen=True, slots=True)
class JobKey:
    """A job by its fingerprint, and what people and tables know it by.

    Attributes:
        metric: The metric that its runs are compared by.
    """

    fingerprint: Annotated[str, "Fingerprint of the job.", DIGEST]
    workload: Annotated[str, "Name of the workload, for people.", NAME]
    workers: Annotated[int, "n, the size of the cluster.", COUNT]
    total_worker_steps: Annotated[int, "W, the length of the job.", LENGTH]
    metric: Metric


@dataclass(frozen=True, slots=True)
class Protocols:
    """How a job is trained, but for when it switches."""

    first_protocol: Annotated[str, "Protocol before the switch, for example `bsp`.", NAME]
    second_protocol: Annotated[str, "Protocol after the switch, for example `asp`.", NAME]
    momentum_after_switch: Annotated[
        str | None,
        "The momentum of the second protocol, for example `own`; None if it is not known.",
    ] = None

    @property
    def pair(self) -> str:
        """Both protocols as users write them, for example `bsp,asp`."""
        return f"{self.first_protocol},{self.second_protocol}"

    @property
    def described(self) -> str:
        """The pair with the rule of the second one, where jobs differ in nothing else."""
        return f"{self.pair} (momentum after the switch: {self.momentum_after_switch})"


def first_rule(rule: str | None, batch_size: int | None) -> str | None:
    """Returns the rule of the second protocol that older records left unsaid, the first there was.

    Args:
        rule: The rule as recorded.
        batch_size: That of the job, which commands and imported jobs lack; theirs is unknown.
    """
    return "same" if rule is None and batch_size is not None else rule


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a job trains; all that is unknown is None, as of imported jobs and commands."""

    model: Annotated[
        str | None, "Digest of the model's structure (layers and shapes, no weights)."
    ] = None
    data_set: Annotated[str | None, "Declared name of the data set."] = None
    loss: Annotated[str | None, "Name of the training loss."] = None
    optimizer: Annotated[str | None, "The optimizer and its settings, as canonical JSON."] = None
    batch_size: Annotated[int | None, "B, examples per worker-step.", COUNT] = None
    learning_rate: Annotated[float | None, "eta, for one worker."] = None
    momentum: Annotated[float | None, "Momentum of the optimizer; 0 if it has none."] = None
    learning_rate_boundaries: Annotated[
        tuple[tuple[int, float], ...] | None,
        "`(worker_step, factor)`: from that worker-step on the learning rate is eta times factor.",
    ] = None
    evaluation_interval_worker_steps: Annotated[
        int | None, "Worker-steps from one evaluation of the model to the next.", LENGTH
    ] = None


@dataclass(frozen=True, slots=True)
class Job:
    """What is trained, and where, whatever the schedule.

    Seed, paths and host are left out of the fingerprint on purpose, and so is `name`, which only
    people use; a job whose model is unknown is also identified by its name.

    Attributes:
        recipe: How it trains.
        described_metric: The metric that is called accuracy, as its model describes it.
    """

    name: Annotated[str, "The name for people, for example `digits`.", NAME]
    total_worker_steps: Annotated[int, "W, the length of the job.", LENGTH]
    workers: Annotated[int, "n, the size of the cluster.", COUNT]
    recipe: Recipe
    described_metric: DescribedMetric
    simulated_cluster: Annotated[
        str | None, "Digest of the profile of a simulated cluster; None for a real one.", CLUSTER
    ] = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Job:
        """Rebuilds a job from its values as JSON has them, among others."""
        pairs = values["learning_rate_boundaries"]  # JSON has no tuples
        boundaries = None if pairs is None else tuple((step, factor) for step, factor in pairs)
        return nested(cls, {**values, "learning_rate_boundaries": boundaries})

    @property
    def metric(self) -> Metric:
        """The metric that its runs are compared by."""
        return self.described_metric.metric

    @property
    def key(self) -> JobKey:
        """The job as a timing policy names it."""
        return JobKey(
            self.fingerprint, self.name, self.workers, self.total_worker_steps, self.metric
        )

    @property
    def is_command(self) -> bool:
        """Whether a training command makes its runs, as its data and batches are unknown."""
        recipe = self.recipe
        return recipe.model is not None and recipe.data_set is None and recipe.batch_size is None

    @property
    def size(self) -> str:
        """Size and kind of its cluster, for example `4 simulated workers`, `2 processes`."""
        if self.is_command:
            return f"{self.workers} process{'' if self.workers == 1 else 'es'}"
        kind = "" if self.simulated_cluster is None else "simulated "
        return f"{self.workers} {kind}worker{'' if self.workers == 1 else 's'}"

    @property
    def sized_name(self) -> str:
        """Name and size, for example `digits on 4 workers`; not that of a single process."""
        is_single = self.is_command and self.workers == 1
        return self.name if is_single else f"{self.name} on {self.size}"

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits, the same on every machine and in every year."""
        content = flat(self)
        if self.recipe.model is not None:
            del content["name"]
        return digest_of({"version": _FINGERPRINT_VERSION, **content})


_FINGERPRINT_VERSION = 2  # in the first one the protocols were a part of the job


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A job and the protocols that it is trained with.

    Attributes:
        job: The job.
        protocols: The protocols.
    """

    job: Job
    protocols: Protocols

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ScheduledJob:
        """Rebuilds it from its values as JSON has them, among others."""
        return cls(Job.of(values), nested(Protocols, values))

    @classmethod
    def undescribed(
        cls, name: str, total_steps: int, workers: int, protocols: tuple[str, str], metric: Metric
    ) -> ScheduledJob:
        """Makes a job of which nobody says how it trains."""
        described = DescribedMetric(*astuple(metric))
        return cls(Job(name, total_steps, workers, Recipe(), described), Protocols(*protocols))

    @property
    def name(self) -> str:
        """The name for people."""
        return self.job.name

    @property
    def total_worker_steps(self) -> int:
        """W, the length of the job."""
        return self.job.total_worker_steps

    @property
    def workers(self) -> int:
        """n, the size of the cluster."""
        return self.job.workers

    @property
    def recipe(self) -> Recipe:
        """How the job trains."""
        return self.job.recipe

    @property
    def described_metric(self) -> DescribedMetric:
        """The metric that is called accuracy, as its model describes it."""
        return self.job.described_metric

    @property
    def metric(self) -> Metric:
        """The metric that its runs are compared by."""
        return self.job.metric

    @property
    def simulated_cluster(self) -> str | None:
        """Digest of the profile of a simulated cluster; None for a real one."""
        return self.job.simulated_cluster

    @property
    def is_command(self) -> bool:
        """Whether a training command makes its runs."""
        return self.job.is_command

    @property
    def size(self) -> str:
        """Size and kind of its cluster, for example `4 simulated workers`."""
        return self.job.size

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the job, the same with all protocols."""
        return self.job.fingerprint

    @property
    def key(self) -> str:
        """Names the job and how it is trained in files of runs; without spaces."""
        return f"{self.fingerprint}:{self.pair}:{self.momentum_after_switch}"

    @property
    def first_protocol(self) -> str:
        """Protocol before the switch."""
        return self.protocols.first_protocol

    @property
    def second_protocol(self) -> str:
        """Protocol after the switch."""
        return self.protocols.second_protocol

    @property
    def momentum_after_switch(self) -> str | None:
        """The rule of the second protocol."""
        return self.protocols.momentum_after_switch

    @property
    def pair(self) -> str:
        """Both protocols as users write them, for example `bsp,asp`."""
        return self.protocols.pair

    @property
    def step_noun(self) -> str:
        """The noun for its steps, as a command counts its own, a cluster those of each worker."""
        is_loop = self.is_command or self.first_protocol in _WAYS
        return "step" if is_loop else "worker-step"

    @property
    def length(self) -> str:
        """Its length, for example `4,000 worker-steps`."""
        return f"{self.total_worker_steps:,} {self.step_noun}s"

    @property
    def cluster(self) -> str:
        """Size, kind and protocols, for example `4 simulated workers, bsp,asp`."""
        is_single = self.is_command and self.workers == 1
        return self.pair if is_single else f"{self.size}, {self.pair}"


_WAYS = {name: f"the {name} way" for name in ("first", "second")}


def protocol_text(protocol: str) -> str:
    """A protocol in a sentence: `BSP`; `the first way` where a command has no name for it."""
    name, colon, options = protocol.partition(":")
    return _WAYS.get(protocol, f"{name.upper()}{colon}{options}")


def protocol_label(protocol: str) -> str:
    """A protocol in a table: `BSP`, `first way`."""
    return protocol_text(protocol).removeprefix("the ")


def with_protocol(protocol: str) -> str:
    """How to train with a protocol: `with BSP`, or `the first way`."""
    return _WAYS.get(protocol) or f"with {protocol_text(protocol)}"


_LONGEST_NAME_BYTES = 200  # with its endings it is a file's name


def name_problem(name: object) -> str | None:
    """Returns what is wrong with a job's name, which names files, too; None if nothing is."""
    if (
        isinstance(name, str)
        and name.isprintable()
        and name.strip() == name
        and 0 < len(name.encode()) <= _LONGEST_NAME_BYTES
        and not name.startswith(".")
        and not {"/", "@"} & {*name}
    ):
        return None
    return (
        f"the name of the job is {reprlib.repr(name)}: give one of 1 to {_LONGEST_NAME_BYTES}"
        " printable characters without / and @ that does not begin with a dot"
    )


@dataclass(frozen=True, slots=True)
class RegisteredWorkload:
    """A workload as a database knows it.

    Attributes:
        job: The job.
        reference: Normal form of the way to load it: a built-in name, `file.py:attribute` or
            `package.module:attribute`.
    """

    job: Job
    reference: str


@dataclass(frozen=True, slots=True)
class RunConditions:
    """All that influences a run besides its job; only runs under equal conditions are compared.

    Attributes:
        online: The policy on stragglers before the switch: `none`, `greedy` or `elastic`.
        switch_mechanism: `hot`, or `restart` for a checkpoint and a new cluster.
        injections: Disturbances on purpose, each in its recorded form.
    """

    online: str = "none"
    switch_mechanism: str = "hot"
    injections: tuple[str, ...] = ()

    @property
    def is_undisturbed(self) -> bool:
        """Whether nothing was injected, restarted, or decided by an online policy."""
        return self == RunConditions()


@dataclass(frozen=True, slots=True)
class SearchInfo:
    """The settings of one search, which is one Optuna study.

    Attributes:
        protocols: The protocols that it looks at now, in the end those of its policy.
    """

    study: Annotated[str, "Name of the Optuna study."]
    fingerprint: Annotated[str, "Fingerprint of the job."]
    protocols: Protocols
    strategy: Annotated[str, "Name of the strategy."]
    halvings: Annotated[int, "M, how often the range of switch points may be halved."]
    runs: Annotated[int, "R, the repeats per switch point."]
    threshold: Annotated[float, "beta, the accuracy that may be lost."]
    target_accuracy: Annotated[float | None, "The target as given; None if the search measures it."]
    trainer: Annotated[str, "Name of the trainer."]
    base_seed: Annotated[int, "The seed from which those of the trials follow."]
    options: Annotated[
        Mapping[str, bool | int | float | str | list[Any] | None],
        "Further options of the strategy, as JSON values by name; they stay those of the "
        "search's first registration.",
    ] = field(default_factory=dict)
    pairs: Annotated[
        Sequence[str],
        "The pairs of protocols that are searched together; empty for a search of one pair.",
    ] = field(default_factory=list)
    dropped: Annotated[Mapping[str, str], "Why it has no policy for other pairs, by the pair."] = (
        field(default_factory=dict)
    )
