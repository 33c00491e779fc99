"""What a command line has to know of each kind of trainer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import click

if TYPE_CHECKING:
    from syncswitch.storage.records import RunConditions, TimingPolicy, WorkloadIdentity
    from syncswitch.trainers.run_options import ConditionsChoice
    from syncswitch.trainers.trainer import Trainer

__all__ = ["Job", "JobRequest", "OwnOption", "TrainerChoice"]


@dataclass(frozen=True)
class Job:
    """What a search needs of the training side.

    Attributes:
        identity: The workload on its cluster.
        open_trainer: Starts the cluster: not before the first run needs it.
        reference: How the workload is loaded, in normal form; None for what the user called it.
        can_fork: Whether a run can start from the checkpoint of another.
        command_with: The user's own command with a policy; None where `syncswitch-run` trains.
    """

    identity: WorkloadIdentity
    open_trainer: Callable[[], Trainer]
    reference: str | None = None
    can_fork: bool = True
    command_with: Callable[[TimingPolicy], str] | None = None


@dataclass(frozen=True)
class JobRequest:
    """What is to be trained, as the user said it.

    Attributes:
        reference: The workload; None where none was named.
        workers: n as the user said it; None where recorded runs may decide.
        usual_workers: n where neither does.
        protocols: Before and after the switch.
        storage_url: Database of the search.
        seed: Of draws that belong to no run.
    """

    reference: str | None
    workers: int | None
    usual_workers: int
    protocols: tuple[str, str]
    storage_url: str
    seed: int

    @property
    def size(self) -> int:
        """N where nothing is recorded."""
        return self.workers or self.usual_workers


class OwnOption:
    """An option that goes with some kinds of trainers alone.

    Attributes:
        flag: As people write it.
        parameter: What a command's function calls it.
    """

    def __init__(self, *declarations: str, **attributes: Any) -> None:
        """Takes what `click.option` takes."""
        option = click.Option(declarations, **attributes)
        assert option.name is not None
        self.flag = max(option.opts, key=len)
        self.parameter = option.name
        self.add = click.option(*declarations, **attributes)


@dataclass(frozen=True)
class TrainerChoice(ABC):
    """A kind of trainer with the options that were chosen; subclasses hold them as fields.

    Attributes:
        name: Of the kind.
        summary: For people, in a few words.
        options: Those that are its own, or that it shares with some others.
        default_workers: n where nobody says.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    options: ClassVar[tuple[OwnOption, ...]] = ()
    default_workers: ClassVar[int] = 4

    @property
    def kind(self) -> str:
        """Runs of different kinds are not to be compared."""
        return self.name

    def measured_url(self, storage_url: str) -> str:
        """Database of the runs that say how long a training takes."""
        return storage_url

    @abstractmethod
    def job(self, request: JobRequest) -> Job:
        """What a search needs of the training side.

        Raises:
            UserError: Something in the request does not exist, or does not fit the rest.
        """

    @abstractmethod
    def conditions(
        self, chosen: ConditionsChoice, workers: int, switch_percent: float, first_protocol: str
    ) -> RunConditions:
        """Under which conditions the runs train.

        Args:
            chosen: By the user.
            workers: n.
            switch_percent: The scenarios of the paper come before this.
            first_protocol: Before the switch.

        Raises:
            UserError: They do not fit the job, or what makes the runs.
        """
