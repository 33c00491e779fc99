"""Kinds of trainers: their options, and the job that each makes of a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from typing_extensions import override

from syncswitch.searcher.strategies.baseline import MEASURED
from syncswitch.storage.errors import OptionHint, Part, UserError
from syncswitch.storage.records.job import USUAL_PROTOCOLS, USUAL_WORKERS, RunConditions
from syncswitch.trainers.cluster.local import load_local_workload
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.hyperparameters import rates_text
from syncswitch.trainers.job.loading import BUILT_IN, find_module
from syncswitch.trainers.job.schedule import check_length
from syncswitch.trainers.protocols import check_protocols, parse_pair

if TYPE_CHECKING:
    from syncswitch.searcher.search.plan import SearchPlan
    from syncswitch.searcher.strategies.base import Strategy
    from syncswitch.storage.records.job import ScheduledJob
    from syncswitch.trainers.conditions import ConditionsChoice
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.trainer import Trainer

USUAL_EXPECTED_RUNS = 3
"""Trainings of a job that are expected in all where nobody says how many: a few."""


@dataclass(frozen=True)
class TrainerOption:
    """An option that only some kinds of trainers have, on the command line and in Python.

    Its type is str, int, float, bool or Path. A default of None depends on other things; no
    `choices` allow any value, None as `least` or `most` any number.
    """

    help: str
    type: type = str
    metavar: str = ""
    default: Any = None
    choices: tuple[str, ...] = ()
    least: Any = None
    most: Any = None

    def checked(self, name: str, value: Any) -> Any:
        """Converts a value from Python to the option's type; raises UserError if not allowed."""
        from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

        if value is None:
            return None
        kind: Any = Literal[self.choices] if self.choices else self.type
        if self.type in (int, float):
            kind = Annotated[kind, Field(ge=self.least, le=self.most)]
        given = str(value) if isinstance(value, Path) else value
        try:
            taken = TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))
            return taken.validate_python(given)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise UserError(why, parameter=name, value=value) from error


def option(help: str, type: type = str, *, default: Any = None, **more: Any) -> Any:
    """A field of a kind of trainer that is one of its options; see `TrainerOption`."""
    described = TrainerOption(help, type, default=default, **more)
    return field(default=default, metadata={"option": described})


@dataclass(frozen=True)
class TrainableJob:
    """The training side of a search: the workload on its cluster, and what its runs can do.

    Attributes:
        open_trainer: Starts the cluster; called when the first run needs it.
        reference: How the workload is loaded, or the job is called.
        can_fork: Whether a run can start from the checkpoint of another.
        can_go_back: Whether a guarded run can go back to its switch, instead of to its beginning.
        switch_points: The switch points of recorded runs; None if any can be run.
        command: Returns the user's training command with a switch in percent; None for a workload.
        command_options: The options that describe that command.
        profile: The user's name for the profile of a simulated cluster; None for a real one.
        recordings_url: Database of the recorded runs that answer; None if runs are made.
        note: What the user should know beforehand; None for nothing.
    """

    identity: ScheduledJob
    open_trainer: Callable[[], Trainer]
    reference: str
    conditions: RunConditions = RunConditions()  # noqa: RUF009 (frozen)
    can_fork: bool = True
    can_go_back: bool = True
    switch_points: tuple[float, ...] | None = None
    command: Callable[[float], str] | None = None
    command_options: tuple[OptionHint, ...] = ()
    profile: str | None = None
    recordings_url: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class JobRequest:
    """What the user asked to train.

    Attributes:
        reference: The workload; None if none was named.
        workers: n as the user said it; None to let recorded runs decide, else `usual_workers`.
        seed: Seed of draws that belong to no run.
        switch_percent: The switch point before which the paper's scenarios of stragglers come.
        workload: The workload itself, if it was not named; only for runs in this process.
    """

    reference: str | None
    workers: int | None
    usual_workers: int
    protocols: tuple[str, str]
    storage_url: str
    seed: int
    chosen: ConditionsChoice
    switch_percent: float = 100.0
    workload: Workload | None = None

    @property
    def size(self) -> int:
        """N if nothing is recorded."""
        return self.workers or self.usual_workers

    @property
    def named(self) -> str:
        """The workload's name. Raises UserError if none was named."""
        if self.reference is None:
            raise UserError(
                f"no WORKLOAD is named; give a built-in name ({', '.join(BUILT_IN)}),"
                " file.py:attribute or package.module:attribute",
                code="parameter-missing",
            )
        return self.reference


@dataclass(frozen=True)
class TrainerChoice(ABC):
    """A kind of trainer; its options are fields of the subclasses, each made by `option`."""

    name: ClassVar[str]
    summary: ClassVar[str]
    default_workers: ClassVar[int] = USUAL_WORKERS
    default_protocols: ClassVar[str] = USUAL_PROTOCOLS

    @classmethod
    def options(cls) -> dict[str, TrainerOption]:
        """Its options by their names in Python: the fields that `option` made."""
        return {option.name: option.metadata["option"] for option in fields(cls)}

    @property
    def kind(self) -> str:
        """Name of the kind; only runs of one kind are comparable."""
        return self.name

    def take_part(self, reference: str | None, say: Callable[[str], None]) -> bool:
        """Does the work of this process, unless it is the chief of its cluster; returns whether.

        The reference is the workload, if the command names one; `say` is told what goes on.
        """
        return False

    def check_parallel_runs(self, parallel_runs: int) -> None:  # noqa: B027 (most kinds have room for any number)
        """Raises UserError if so many runs cannot be made at once."""

    def workers(self, given: int | None) -> int | None:
        """The workers that the user gives or an existing cluster has; None without either.

        Raises UserError if they differ.
        """
        return given

    def pair(self, text: str | None) -> tuple[str, str]:
        """Returns the protocols of `--protocols`, or the default ones.

        Raises UserError unless they are two different ones that this kind knows.
        """
        return parse_pair(text or self.default_protocols)

    @abstractmethod
    def job(self, request: JobRequest) -> TrainableJob:
        """Returns the job that a request asks for.

        Raises UserError if something in it does not exist, or does not fit the rest of it.
        """


@dataclass(frozen=True)
class ClusterChoice(TrainerChoice):
    """A kind of trainer that trains workloads itself, on a real or a simulated cluster."""

    @property
    def launcher_kind(self) -> str:
        """Name of the launcher, which decides what `check_injections` allows to disturb."""
        return self.name

    @property
    def servers(self) -> int:
        return 1

    @property
    def simulated_cluster(self) -> str | None:
        """Digest of the profile of a simulated cluster."""
        return None

    @property
    def other_process(self) -> str:
        """What loads workloads in another process, for messages; empty if nothing does."""
        return ""

    @property
    def search_options(self) -> tuple[OptionHint, ...]:
        """Options with which a search makes its runs here; for messages."""
        return ()

    def check_capacity(self, workers: int) -> None:
        """Raises UserError if it is already clear that the cluster cannot have so many workers."""

    def find(self, reference: str) -> None:
        """Raises UserError if there is no such module or file; loads nothing."""
        find_module(reference)

    def load(self, reference: str, workers: int) -> Workload:
        """Loads a workload, in a process that can run so many workers."""
        return load_local_workload(reference, workers)

    def identity(
        self, workload: Workload, workers: int, protocols: tuple[str, str]
    ) -> ScheduledJob:
        """The job that a workload is on this cluster; only its own runs compare with it."""
        return workload_identity(workload, workers, *protocols)

    @abstractmethod
    def open(self, workload: Workload, reference: str, workers: int) -> Trainer:
        """Starts the cluster, or joins it; a chief in another process loads the reference there.

        Raises UserError if it has no room for the workers, RetryableError if a part is missing.
        """

    @override
    def job(self, request: JobRequest) -> TrainableJob:
        workers = request.size
        check_protocols(request.protocols, workers)
        conditions = self.conditions(
            request.chosen, workers, request.switch_percent, request.protocols[0]
        )
        if request.workload is None:
            reference = request.named
            self.find(reference)
            self.check_capacity(workers)
            workload = self.load(reference, workers)
        else:
            workload, reference = request.workload, request.workload.name
            if self.other_process:
                raise UserError(
                    f"workload {reference!r} is an object of this process, and {self.other_process}"
                    " loads it in another one; name it instead, such as my_workload.py:workload",
                    code="parameters-conflict",
                )
            self.check_capacity(workers)
        identity = self.identity(workload, workers, request.protocols)
        check_length(identity)
        return TrainableJob(
            identity,
            lambda: self.open(workload, reference, workers),
            reference,
            conditions,
            note=rates_text(workload, identity),
        )

    def conditions(
        self, chosen: ConditionsChoice, workers: int, switch_percent: float, first_protocol: str
    ) -> RunConditions:
        """Returns the conditions of the runs; the paper's scenarios depend on `switch_percent`.

        Raises UserError if they do not fit the job, or the cluster.
        """
        return chosen.conditions(
            workers, switch_percent, first_protocol, self.launcher_kind, self.servers
        )


@dataclass(frozen=True)
class ProcessesChoice(ClusterChoice):
    """A kind of trainer whose clusters may have several parameter servers, and GPUs."""

    parameter_servers: int | None = option(
        "Processes that share the parameters and the optimizer's state."
        "  [default: 1, or those in TF_CONFIG]",
        int,
        metavar="N",
        least=1,
        most=1_000,
    )
    gpus_per_worker: float = option(
        "GPUs that compute a worker's steps: 0, 1, or a share such as 0.5 for two workers on one"
        " GPU. Experimental: other than 0.",
        float,
        metavar="0|1|SHARE",
        default=0.0,
    )

    @property
    @override
    def servers(self) -> int:
        return self.parameter_servers or 1

    @property
    def servers_text(self) -> str:
        """The number of parameter servers in the name of a kind; it changes the pace."""
        return "" if self.servers == 1 else f", {self.servers:,} parameter servers"

    @property
    def gpus_text(self) -> str:
        return f", {self.gpus_per_worker:g} GPU" if self.gpus_per_worker else ""


def unsuitable(why: str, parameter: str, value: Any, remedy: Part = "leave it out") -> UserError:
    """The error that a parameter does not fit what is given beside it."""
    return UserError(why, parameter=parameter, value=value, remedy=remedy)


def plan_search(
    trainer: TrainerChoice,
    request: JobRequest,
    strategy: Strategy,
    *,
    forks_are_wanted: bool = False,
    threshold_is_given: bool = True,
) -> tuple[SearchPlan, TrainableJob]:
    """Returns the plan of a search, and its job; the plan is checked before the job is loaded.

    The strategy's target is in the unit of the job's metric, and so is its threshold. If none is
    given and the metric's best value is not 1, or runs to measure it in, the search measures the
    threshold.

    If no run can start from the checkpoint of another, the plan shares no prefixes, unless the user
    asked for them (`forks_are_wanted`). Raises UserError if something is out of range, does not
    exist, or does not fit the rest.
    """
    from syncswitch.searcher.search.plan import SearchPlan, steps_of

    plan = SearchPlan(strategy, trainer=trainer.kind, base_seed=request.seed)
    # Only the job knows the range of the metric.
    replace(plan, strategy=replace(strategy, accuracy_range=(None, None))).check()
    job = trainer.job(request)
    metric = job.identity.metric
    has_threshold = threshold_is_given or metric.has_usual_threshold
    if not (has_threshold or strategy.allowed.is_from_runs):
        strategy = strategy.with_allowed(MEASURED)
    strategy = strategy.measured_by(metric).with_momentum(job.identity.momentum_after_switch)
    if not job.can_go_back:
        strategy = strategy.without_going_back()
    strategy = strategy.distinct(steps_of(job.identity, job.identity.first_protocol))
    plan = replace(plan, strategy=strategy, conditions=job.conditions)
    plan.check()
    if job.switch_points is not None:
        strategy = strategy.among(job.switch_points)
        plan = replace(plan, strategy=strategy)
    if job.can_fork or not strategy.share_prefix:
        return plan, job
    if forks_are_wanted:
        why = "needs runs that start from checkpoints of others, and those of a command do not"
        raise unsuitable(why, "share_prefix", True)
    return replace(plan, strategy=replace(strategy, share_prefix=False)), job
