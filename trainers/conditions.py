"""The conditions under which a job trains: online policy, switch mechanism, injected faults."""

from __future__ import annotations

from dataclasses import dataclass

from syncswitch.storage.errors import OptionHint, UserError
from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.cluster.local import JOINING_LAUNCHER
from syncswitch.trainers.protocols import Exchange, choose_protocol

_USUAL = RunConditions()


@dataclass(frozen=True)
class ConditionsChoice:
    """The conditions that the user chose, which mean something only together with a job."""

    online: str  # name of the online policy
    switch_mechanism: str  # `hot` or `restart`
    inject: tuple[str, ...] = ()  # injections and scenarios, as `--inject` takes them

    def conditions(
        self,
        workers: int,
        switch_percent: float,
        first_protocol: str,
        launcher: str,
        servers: int = 1,
    ) -> RunConditions:
        """Returns the conditions of one job; the paper's scenarios come before the switch.

        Raises UserError if a choice does not fit the job or the launcher.
        """
        exchange = choose_protocol(first_protocol).exchange
        if self.online != _USUAL.online and exchange is not Exchange.ROUND:
            raise UserError(
                "it acts while workers wait for each other in rounds, and"
                f" {first_protocol} before the switch has none",
                parameter="online",
                value=self.online,
                remedy=(OptionHint("protocols", "bsp,...", "use"), "leave it out"),
                code="parameters-conflict",
            )
        if self.switch_mechanism != _USUAL.switch_mechanism and launcher == "simulated":
            raise UserError(
                "a simulated cluster has no processes to restart",
                parameter="switch",
                value=self.switch_mechanism,
                remedy="leave it out; switch_seconds of a profile sets what a switch costs",
                code="parameters-conflict",
            )
        if self.switch_mechanism != _USUAL.switch_mechanism and launcher == JOINING_LAUNCHER:
            raise UserError(
                f"the processes of the launcher {launcher} can only be restarted by the"
                " platform that started them",
                parameter="switch",
                value=self.switch_mechanism,
                remedy="leave it out",
                code="parameters-conflict",
            )
        texts: tuple[str, ...] = ()
        if self.inject:
            from syncswitch.trainers.faults.injections import check_injections, injections

            chosen = injections(self.inject, workers, switch_percent)
            check_injections(chosen, launcher, servers)
            texts = tuple(injection.text for injection in chosen)
        return RunConditions(self.online, self.switch_mechanism, texts)

    def check_nothing_chosen(self, reason: str) -> None:
        """Raises UserError if anything but the defaults was chosen."""
        chosen = {
            "online": self.online != _USUAL.online,
            "switch": self.switch_mechanism != _USUAL.switch_mechanism,
            "inject": bool(self.inject),
        }
        for option, is_chosen in chosen.items():
            if is_chosen:
                raise UserError(
                    f"cannot be used: {reason}",
                    parameter=option,
                    remedy="leave it out",
                    code="parameters-conflict",
                )
