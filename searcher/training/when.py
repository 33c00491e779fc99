"""What the user says about when a training switches."""

from __future__ import annotations

from dataclasses import dataclass

from syncswitch.searcher.backends.base import USUAL_EXPECTED_RUNS
from syncswitch.searcher.strategies.baseline import AllowedLoss
from syncswitch.storage.errors import UserError, leave_out
from syncswitch.storage.records.trial import BASELINE_PERCENT


@dataclass(frozen=True)
class When:
    """What decides when a training switches: a policy, learning, or its user.

    The fields are arguments of `train`; `allowed` is its `threshold` or `threshold_runs`. Raises
    UserError where they contradict each other.
    """

    policy: str | None = None
    switch_at: float | None = None
    protocol: str | None = None
    guarded: bool = True
    learn: bool | None = None
    expected_runs: int = USUAL_EXPECTED_RUNS
    allowed: AllowedLoss | None = None

    def __post_init__(self) -> None:
        """Checks that at most one thing decides, and that the rest fits it."""
        if self.learn and not self.guarded:
            raise UserError(
                "needs the guard",
                parameter="learn",
                value=True,
                remedy=leave_out("guarded", False),
            )
        said = {
            "learn": self.learn,
            "switch_at": self.switch_at is not None,
            "protocol": self.protocol is not None,
            "policy": self.policy is not None,
        }
        given = [option for option, is_said in said.items() if is_said]
        if len(given) > 1:
            raise UserError(
                "both say when to switch", parameter=given, remedy="leave out one of them"
            )
        kept = [leave_out(one) for one in given if one != "learn"]
        kept += [] if self.guarded else [leave_out("guarded", False)]
        kept += [leave_out("learn", False)] if self.learn is False else []
        if self.allowed is not None and kept:
            raise UserError(
                "is for runs that learn",
                parameter=self.allowed.parameter,
                remedy=(kept[0], leave_out(self.allowed.parameter)),
            )

    @property
    def percent(self) -> float | None:
        """The switch point that the user names; None to leave it to the policy or to learning."""
        return self.switch_at if self.protocol is None else BASELINE_PERCENT

    @property
    def may_learn(self) -> bool:
        """Whether the run may try another switch point than its policy's."""
        return self.guarded and self.learn is not False and self.policy is None
