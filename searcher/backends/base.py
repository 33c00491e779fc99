"""Kinds of trainers: their options, and the job that each makes of a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.local import load_local_workload
from syncswitch.trainers.job.checks import check_length
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import BUILT_IN, find_module
from syncswitch.trainers.options import USUAL_PROTOCOLS, USUAL_WORKERS, TrainerOption
from syncswitch.trainers.protocols import check_protocols, parse_pair

if TYPE_CHECKING:
    from syncswitch.searcher.search.plan import SearchPlan
    from syncswitch.searcher.strategies.base import Strategy
    from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
    from syncswitch.storage.records.policy import TimingPolicy
    from syncswitch.trainers.conditions import ConditionsChoice
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.trainer import Trainer


@dataclass(frozen=True)
class Job:
    """The training side of a search.

    Attributes:
        identity: The workload on its cluster.
        open_trainer: Starts the cluster: not before the first run needs it.
        reference: How the workload is loaded, in normal form; None for what the user called it.
        can_fork: Whether a run can start from the checkpoint of another.
        can_go_back: Whether a guarded run can go back to its switch, instead of to its beginning.
        switch_points: Those of which there are runs; None where any can be made.
        command_with: The user's own command with a policy; None where `syncswitch-run` trains.
        profile: Of a simulated cluster, as the user named it; None for a real one.
        note: What the user should know of it beforehand; None for nothing.
    """

    identity: WorkloadIdentity
    open_trainer: Callable[[], Trainer]
    reference: str | None = None
    can_fork: bool = True
    can_go_back: bool = True
    switch_points: tuple[float, ...] | None = None
    command_with: Callable[[TimingPolicy], str] | None = None
    profile: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class JobRequest:
    """A request to train something, as the user made it.

    Attributes:
        reference: The workload; None where none was named.
        workers: n as the user said it; None where recorded runs may decide.
        usual_workers: n where neither does.
        protocols: Before and after the switch.
        seed: Of draws that belong to no run.
        workload: The workload itself, where it was not named; only for runs in this process.
    """

    reference: str | None
    workers: int | None
    usual_workers: int
    protocols: tuple[str, str]
    storage_url: str
    seed: int
    workload: Workload | None = None

    @property
    def size(self) -> int:
        """N where nothing is recorded."""
        return self.workers or self.usual_workers


@dataclass(frozen=True)
class TrainerChoice(ABC):
    """A kind of trainer with the options that were chosen; subclasses hold them as fields.

    Attributes:
        summary: For people, in a few words.
        options: Those that are its own, or that it shares with some others.
        default_workers: n where nobody says.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    options: ClassVar[tuple[TrainerOption, ...]] = ()
    default_workers: ClassVar[int] = USUAL_WORKERS
    default_protocols: ClassVar[str] = USUAL_PROTOCOLS

    @property
    def kind(self) -> str:
        """Runs of different kinds are not to be compared."""
        return self.name

    def take_part(self, reference: str | None, say: Callable[[str], None]) -> bool:
        """Do the work of this process where it is no chief of its cluster.

        Args:
            reference: The workload, if the command names one.
            say: Told what goes on.

        Returns:
            Whether it was no chief, and has done its work.
        """
        return False

    def check_jobs(self, jobs: int) -> None:  # noqa: B027 (most kinds have room for any number)
        """Raises UserError where so many runs cannot be made at once."""

    def workers(self, given: int | None) -> int | None:
        """N as the user or a cluster that is there has it; None where neither says.

        Raises UserError where they differ.
        """
        return given

    def pair(self, text: str | None) -> tuple[str, str]:
        """The protocols of `--protocols`, or the usual ones.

        Raises UserError where they are not two different ones that this kind knows.
        """
        return parse_pair(text or self.default_protocols)

    def measured_url(self, storage_url: str) -> str:
        """Database of the runs that say how long a training takes."""
        return storage_url

    @abstractmethod
    def job(self, request: JobRequest) -> Job:
        """The job that a request asks for.

        Raises:
            UserError: Something in the request does not exist, or does not fit the rest.
        """

    @abstractmethod
    def conditions(
        self, chosen: ConditionsChoice, workers: int, switch_percent: float, first_protocol: str
    ) -> RunConditions:
        """Under which conditions the runs train; the paper's scenarios are for `switch_percent`.

        Raises UserError where they do not fit the job, or what makes the runs.
        """


@dataclass(frozen=True)
class ClusterChoice(TrainerChoice):
    """A kind of trainer that trains workloads itself, on a real or a simulated cluster."""

    @property
    def launcher_kind(self) -> str:
        """Name of the launcher, by which `check_injections` knows what can be disturbed there."""
        return self.name

    @property
    def servers(self) -> int:
        """Number of parameter servers."""
        return 1

    @property
    def simulated_cluster(self) -> str | None:
        """Digest of the profile of a simulated cluster."""
        return None

    @property
    def search_options(self) -> str:
        """Options that a search needs to make its runs here; for messages."""
        return ""

    def check_capacity(self, workers: int) -> None:
        """Raises UserError where the cluster cannot have so many workers, as far as known early."""

    def check_object(self, name: str) -> None:
        """Raises UserError where another process would have to load the workload of this name."""

    def load(self, reference: str, workers: int) -> Workload:
        """Loads a workload into a process that can run `workers` workers.

        Raises:
            UserError: There is no such workload.
        """
        return load_local_workload(reference, workers)

    def identity(
        self, workload: Workload, workers: int, protocols: tuple[str, str]
    ) -> WorkloadIdentity:
        """The job."""
        return workload_identity(workload, workers, *protocols)

    @abstractmethod
    def open(self, workload: Workload, reference: str, workers: int) -> Trainer:
        """Starts the cluster, or joins it.

        Args:
            workload: What `reference` names.
            reference: For a chief that loads the workload in a process of its own.
            workers: n.

        Raises:
            UserError: The cluster has no room for them.
            RetryableError: A part of the cluster is not there.
        """

    @override
    def job(self, request: JobRequest) -> Job:
        workers = request.size
        check_protocols(request.protocols, workers)
        if request.workload is None:
            reference = named(request)
            find_module(reference)
            self.check_capacity(workers)
            workload = self.load(reference, workers)
        else:
            workload, reference = request.workload, request.workload.name
            self.check_object(reference)
            self.check_capacity(workers)
        identity = self.identity(workload, workers, request.protocols)
        check_length(identity)
        return Job(identity, open_trainer=lambda: self.open(workload, reference, workers))

    @override
    def conditions(
        self, chosen: ConditionsChoice, workers: int, switch_percent: float, first_protocol: str
    ) -> RunConditions:
        return chosen.conditions(
            workers, switch_percent, first_protocol, self.launcher_kind, self.servers
        )


def servers_text(servers: int) -> str:
    """Number of parameter servers in the name of a kind, as it decides how long a run takes."""
    return "" if servers == 1 else f", {servers:,} parameter servers"


def named(request: JobRequest) -> str:
    """The workload of a request that cannot do without.

    Raises:
        UserError: None was named.
    """
    if request.reference is None:
        raise UserError(
            f"no WORKLOAD is named; give a built-in name ({', '.join(BUILT_IN)}),"
            " file.py:attribute or package.module:attribute"
        )
    return request.reference


def plan_search(
    trainer: TrainerChoice,
    request: JobRequest,
    strategy: Strategy,
    chosen: ConditionsChoice,
    *,
    forks_are_wanted: bool = False,
    threshold_is_given: bool = True,
) -> tuple[SearchPlan, Job]:
    """Return the plan of a search and its job; the plan is checked first.

    The strategy's target is in the unit of the job's metric, and so is its threshold. Where that is
    not given and the best value is not 1, the search measures it.

    Where no run can start from the checkpoint of another, the plan does without, unless the user
    asked for shared prefixes (`forks_are_wanted`). Raises UserError where something is out of
    range, does not exist, or does not fit the rest.
    """
    from syncswitch.searcher.search.plan import SearchPlan

    plan = SearchPlan(
        strategy,
        trainer=trainer.kind,
        base_seed=request.seed,
        conditions=trainer.conditions(chosen, request.size, 100.0, request.protocols[0]),
    )
    # What a metric can be, the job alone knows.
    replace(plan, strategy=replace(strategy, accuracy_range=(None, None))).check()
    job = trainer.job(request)
    metric = job.identity.decided_by
    if not (threshold_is_given or metric.has_usual_threshold):
        strategy = strategy.without_threshold()
    strategy = strategy.measured_by(metric)
    if not job.can_go_back:
        strategy = strategy.without_going_back()
    plan = replace(plan, strategy=strategy)
    plan.check()
    if job.switch_points is not None:
        strategy = strategy.among(job.switch_points)
        plan = replace(plan, strategy=strategy)
    if job.can_fork or not strategy.share_prefix:
        return plan, job
    if forks_are_wanted:
        raise UserError(
            "--share-prefix needs runs that start from checkpoints of others, and those of a"
            " command do not; leave it out"
        )
    return replace(plan, strategy=replace(strategy, share_prefix=False)), job
