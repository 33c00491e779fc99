"""Options that say what makes the runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from syncswitch.searcher.cli import compose
from syncswitch.storage.errors import UserError
from syncswitch.trainers.simulated import DEFAULT_PROFILE

if TYPE_CHECKING:
    from syncswitch.storage.records import RunConditions
    from syncswitch.trainers.run_options import ConditionsChoice

__all__ = ["TrainerChoice", "is_given", "trainer_options"]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class TrainerChoice:
    """What makes the runs.

    Attributes:
        name: Of the trainer.
        launcher: Of a local cluster.
        profile: Name or file, of a simulated cluster.
        recordings_url: Database of recorded runs; None for none.
    """

    name: str
    launcher: str
    profile: str
    recordings_url: str | None

    @property
    def kind(self) -> str:
        """Runs of different kinds are not to be compared."""
        return f"{self.name}/{self.launcher}" if self.name in compose.TRAINERS else self.name

    def job(
        self,
        reference: str,
        workers: int,
        given_workers: int | None,
        protocols: tuple[str, str],
        storage_url: str,
        seed: int,
    ) -> compose.Job:
        """What a search needs of the training side.

        Args:
            reference: The workload.
            workers: n.
            given_workers: The same where the user said it; else recorded runs decide.
            protocols: Before and after the switch.
            storage_url: Database of the search.
            seed: Of the draws among recorded runs.

        Raises:
            UserError: Something in it does not exist, or does not fit the rest.
        """
        if self.recordings_url is not None:
            return compose.compose_replay(
                reference, given_workers, protocols, self.recordings_url, storage_url, seed
            )
        if self.name == compose.SIMULATED:
            return compose.compose_simulated(reference, workers, protocols, self.profile)
        return compose.TRAINERS[self.name](reference, workers, protocols, self.launcher)

    def conditions(
        self,
        chosen: ConditionsChoice,
        workers: int,
        switch_percent: float,
        first_protocol: str,
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
        if self.name == compose.REPLAY:
            chosen.check_nothing_chosen("--trainer replay trains nothing, its runs are recorded")
        launcher = compose.SIMULATED if self.name == compose.SIMULATED else self.launcher
        return chosen.conditions(workers, switch_percent, first_protocol, launcher)

    def check(self) -> None:
        """Refuses options that do not go with the trainer.

        Raises:
            UserError: There are such.
        """
        is_replay, is_simulated = self.name == compose.REPLAY, self.name == compose.SIMULATED
        if is_replay and self.recordings_url is None:
            raise UserError(
                "--trainer replay needs the database of the recorded runs: add --recordings URL"
            )
        if not is_replay and self.recordings_url is not None:
            raise UserError("--recordings needs --trainer replay: add that, or leave it out")
        if not is_simulated and is_given("profile"):
            raise UserError("--profile needs --trainer simulated: add that, or leave it out")
        if self.name not in compose.TRAINERS and is_given("launcher"):
            raise UserError(
                f"--launcher starts a cluster, and --trainer {self.name} needs none: leave it out"
            )


def trainer_options(function: _F) -> _F:
    """`--trainer`, `--launcher`, `--profile` and `--recordings`, as one argument `trainer`."""

    @functools.wraps(function)
    def gathered(
        *arguments: Any,
        trainer: str,
        launcher: str,
        profile: str,
        recordings_url: str | None,
        **others: Any,
    ) -> Any:
        choice = TrainerChoice(trainer, launcher, profile, recordings_url)
        choice.check()
        return function(*arguments, trainer=choice, **others)

    decorated: Any = gathered
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    found: _F = decorated
    return found


def is_given(parameter: str) -> bool:
    """Whether the user said it, instead of leaving it to its default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source == ParameterSource.COMMANDLINE


_OPTIONS = (
    click.option(
        "--trainer",
        type=click.Choice([*compose.TRAINERS, compose.SIMULATED, compose.REPLAY]),
        default="local",
        show_default=True,
        help="What makes the runs: local = a TensorFlow cluster on this machine; simulated = real"
        " gradients on a virtual clock; replay = nothing is trained, recorded runs answer.",
    ),
    click.option(
        "--launcher",
        type=click.Choice(compose.LAUNCHERS),
        default=compose.DEFAULT_LAUNCHER,
        show_default=True,
        help="in-process = workers are threads; processes = servers of their own.",
    ),
    click.option(
        "--profile",
        metavar="NAME|FILE",
        default=DEFAULT_PROFILE,
        show_default=True,
        help="What the cluster is like (--trainer simulated): see `syncswitch-search profile`.",
    ),
    click.option(
        "--recordings",
        "recordings_url",
        metavar="URL",
        help="Database of the recorded runs (--trainer replay).",
    ),
)
