"""Options that say under which conditions a job trains; for the command lines.

Light at import: what reads the options is imported when they are used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.cli.local import (
    DEFAULT_GRACE_SECONDS,
    DEFAULT_LAUNCHER,
    DEFAULT_TIMEOUT_SECONDS,
    JOINING_LAUNCHER,
    LAUNCHERS,
)
from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.stragglers.online import ONLINE

if TYPE_CHECKING:
    from syncswitch.trainers.faults.grammar import Injection

__all__ = [
    "CLUSTER_TIMEOUT",
    "GPUS_PER_WORKER",
    "LAUNCHER",
    "OPEN_NETWORK",
    "SERVER_GRACE",
    "USUAL_PROTOCOLS",
    "USUAL_WORKERS",
    "ConditionsChoice",
    "NumberRange",
    "conditions_options",
    "inject_option",
    "tensorboard_option",
]

USUAL_WORKERS = 4
USUAL_PROTOCOLS = "bsp,asp"
"""Of a cluster of which nobody said anything."""

_USUAL = RunConditions()
_F = TypeVar("_F", bound=Callable[..., Any])


class NumberRange(click.FloatRange):
    """A range of numbers; NaN, which compares with none, is in no range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """What the user wrote as a number."""
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is no number from {self.min:g} to {self.max:g}", param, ctx)
        return found


@dataclass(frozen=True)
class ConditionsChoice:
    """What the user said; what it means depends on the job.

    Attributes:
        online: Name of the online policy.
        switch_mechanism: `hot` or `restart`.
        inject: Texts of disturbances.
    """

    online: str
    switch_mechanism: str
    inject: tuple[str, ...] = ()

    def conditions(
        self, workers: int, switch_percent: float, first_protocol: str, launcher: str
    ) -> RunConditions:
        """What it means for one job.

        Args:
            workers: n.
            switch_percent: The scenarios of the paper come before this.
            first_protocol: Before the switch.
            launcher: `in-process`, `processes`, `tf-config` or `simulated`.

        Raises:
            UserError: It does not fit the job, the launcher or this machine.
        """
        exchange = choose_protocol(first_protocol).exchange
        if self.online != _USUAL.online and exchange is not Exchange.ROUND:
            raise UserError(
                f"--online {self.online} acts while workers wait for each other in rounds, and"
                f" {first_protocol} before the switch has none; use --protocols bsp,... or leave"
                " it out"
            )
        if self.switch_mechanism != _USUAL.switch_mechanism and launcher == "simulated":
            raise UserError(
                f"--switch {self.switch_mechanism} cannot be used with --trainer simulated, whose"
                " cluster has no servers to start anew; switch_seconds of a profile says what a"
                " switch costs"
            )
        if self.switch_mechanism != _USUAL.switch_mechanism and launcher == JOINING_LAUNCHER:
            raise UserError(
                f"--switch {self.switch_mechanism} cannot be used with --launcher {launcher}, whose"
                " servers only those who started them can start anew; leave it out"
            )
        found = self._injections(workers, switch_percent, launcher) if self.inject else ()
        return RunConditions(
            self.online, self.switch_mechanism, tuple(injection.text for injection in found)
        )

    def check_nothing_chosen(self, reason: str) -> None:
        """Refuses all that is not the default.

        Raises:
            UserError: There is such.
        """
        chosen = {
            f"--online {self.online}": self.online != _USUAL.online,
            f"--switch {self.switch_mechanism}": self.switch_mechanism != _USUAL.switch_mechanism,
            "--inject": bool(self.inject),
        }
        for option, is_chosen in chosen.items():
            if is_chosen:
                raise UserError(f"{option} cannot be used: {reason}; leave it out")

    def _injections(
        self, workers: int, switch_percent: float, launcher: str
    ) -> tuple[Injection, ...]:
        from syncswitch.trainers.faults.cpu_quota import check_cpu_quota
        from syncswitch.trainers.faults.scenario import check_injections, injections

        found = injections(self.inject, workers, switch_percent)
        check_injections(found, launcher)
        if launcher == "processes" and any(one.by == "cpu" for one in found):
            check_cpu_quota()
        return found


def conditions_options(function: _F) -> _F:
    """`--online` and `--switch`, as one argument `chosen`; with `--inject` where that is there."""

    @functools.wraps(function)
    def gathered(
        *arguments: Any,
        online: str,
        switch_mechanism: str,
        inject: tuple[str, ...] = (),
        **others: Any,
    ) -> Any:
        chosen = ConditionsChoice(online, switch_mechanism, inject)
        return function(*arguments, chosen=chosen, **others)

    decorated: Any = gathered
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    found: _F = decorated
    return found


def inject_option(function: _F) -> _F:
    """`--inject`; stands above `conditions_options`, which takes it."""
    return click.option(
        "--inject",
        metavar="INJECTION|SCENARIO|FILE",
        multiple=True,
        help="A disturbance on purpose, such as kill:worker=1,at=30% or"
        " straggler:worker=2,at=20%,for=100s,delay=30ms; a scenario of the paper: mild, moderate;"
        " or a .json file of injections. May be given several times.",
    )(function)


def tensorboard_option(function: _F) -> _F:
    """`--tensorboard`, a folder that can be written, or None."""

    def checked(context: click.Context, _: click.Parameter, folder: Path | None) -> Path | None:
        from syncswitch.trainers.run.tensorboard import check_tensorboard

        if folder is not None and not context.resilient_parsing:
            check_tensorboard(folder)
        return folder

    return click.option(
        "--tensorboard",
        "tensorboard_folder",
        metavar="FOLDER",
        type=click.Path(path_type=Path),
        callback=checked,
        help="Write a log of each run for TensorBoard, into a folder of its own in this one, while"
        " it trains. Needs the extra tensorboard.",
    )(function)


LAUNCHER: tuple[str, Mapping[str, Any]] = (
    "--launcher",
    {
        "type": click.Choice([*LAUNCHERS, JOINING_LAUNCHER]),
        "help": "in-process = workers are threads; processes = servers of their own; tf-config ="
        " the cluster in TF_CONFIG, each part of which is started with this same command."
        f"  [default: tf-config where TF_CONFIG is set, else {DEFAULT_LAUNCHER}]",
    },
)
"""An option's name, and what else click is to know of it; likewise those that follow."""

GPUS_PER_WORKER: tuple[str, Mapping[str, Any]] = (
    "--gpus-per-worker",
    {
        "type": float,
        "default": 0.0,
        "show_default": True,
        "metavar": "0|1|SHARE",
        "help": "GPUs that compute the steps of a worker: 0, 1, or a share such as 0.5 for two"
        " workers on one.",
    },
)

OPEN_NETWORK: tuple[str, Mapping[str, Any]] = (
    "--open-network",
    {
        "is_flag": True,
        "default": False,
        "help": "With --launcher processes, go on where the system allows no private network: the"
        " servers then listen on all interfaces and ask nobody for a password.",
    },
)

CLUSTER_TIMEOUT: tuple[str, Mapping[str, Any]] = (
    "--cluster-timeout",
    {
        "type": NumberRange(1.0, 1e6),
        "metavar": "SECONDS",
        "help": "How long the parts of the cluster in TF_CONFIG wait for each other: the chief for"
        " servers that have yet to come, or to come back; a server for a chief."
        f"  [default: {DEFAULT_TIMEOUT_SECONDS:g}]",
    },
)

SERVER_GRACE: tuple[str, Mapping[str, Any]] = (
    "--server-grace",
    {
        "type": NumberRange(0.0, 1e6),
        "metavar": "SECONDS",
        "help": "How long a server of the cluster in TF_CONFIG waits for a chief that has gone, and"
        f" may be started again, before it ends.  [default: {DEFAULT_GRACE_SECONDS:g}]",
    },
)

_OPTIONS = (
    click.option(
        "--online",
        type=click.Choice(ONLINE),
        default=_USUAL.online,
        show_default=True,
        help="What is done about stragglers before the switch: greedy = switch as long as there"
        " are some; elastic = go on without them until the switch.",
    ),
    click.option(
        "--switch",
        "switch_mechanism",
        type=click.Choice(["hot", "restart"]),
        default=_USUAL.switch_mechanism,
        show_default=True,
        help="hot = the running cluster changes its protocol; restart = a checkpoint and a new"
        " cluster.",
    ),
)
