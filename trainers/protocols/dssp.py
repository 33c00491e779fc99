"""Dynamic stale synchronous parallel: the fastest may run ahead if that shortens its wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from typing_extensions import override

from syncswitch.trainers.protocols.base import NOBODY, Release, whole_number
from syncswitch.trainers.protocols.ssp import SSP

_DEFAULT_LOW, _DEFAULT_HIGH = 3, 15  # the paper's experiments
_LARGEST = 1000  # the controller tries every number of steps up to this


Pushes = tuple[float, float]
"""The time of a worker's last push, and that between its last two."""


def extra_steps(fast: Pushes, slow: Pushes, range_steps: int, most_steps: int) -> int:
    """The number of further steps of the fastest worker that end closest to a push of the slowest.

    Both workers are assumed to keep the pace of their last step. `range_steps`, r_max, is the
    number of pushes of the slowest predicted after its next. The answer is from 0 to `most_steps`,
    the smallest of equally good ones.
    """
    (fast_seconds, pace), (slow_seconds, slow_pace) = fast, slow
    first_push = slow_seconds + slow_pace

    def wait_seconds(steps: int) -> float:
        end = fast_seconds + steps * pace
        position = (end - first_push) / slow_pace if slow_pace > 0 else 0.0
        before = int(min(max(position, 0.0), range_steps))
        return min(
            abs(slow_seconds + (push + 1) * slow_pace - end)
            for push in (before, min(before + 1, range_steps))
        )

    return min(range(max(most_steps, 0) + 1), key=wait_seconds)


class DSSP(SSP):
    """SSP with a low limit, beyond which the fastest worker may do up to `high - low` more steps.

    Source: Zhao et al., Dynamic Stale Synchronous Parallel Distributed Training for Deep Learning,
    ICDCS 2019 (arXiv 1908.11848), Algorithms 1 and 2.

    In the paper the release that grants steps is not counted as one of them, and a grant ignores
    the current lead, so that leads grow without bound, contrary to its Theorem 2. By default the
    granting release is counted and no grant leads beyond `high_steps`; `bounded=False` follows the
    paper. Among several slowest workers the lowest number is chosen; the paper leaves this open.

    Args:
        low_steps: Lead up to which a worker always goes on.
        high_steps: The largest lead with which a worker may start a step, if `bounded`.
        bounded: Whether `high_steps` is enforced.

    Attributes:
        credit: Number of steps that each worker may still start whatever its lead, from 0 to
            `high - low`.
    """

    name = "dssp"
    usage = "dssp:LOW-HIGH or dssp:LOW-HIGH:unbounded"

    def __init__(
        self,
        workers: Iterable[int],
        low_steps: int = _DEFAULT_LOW,
        high_steps: int = _DEFAULT_HIGH,
        bounded: bool = True,
    ) -> None:
        super().__init__(workers, low_steps)
        self.credit = dict.fromkeys(self.active, 0)
        self._high_steps = high_steps
        self._range_steps = high_steps - low_steps
        self._bounded = bounded
        self._last_seconds: dict[int, float] = {}
        self._pushes: dict[int, Pushes] = {}

    @override
    @classmethod
    def parse_options(cls, text: str) -> Mapping[str, Any]:
        if not text:
            return {"low_steps": _DEFAULT_LOW, "high_steps": _DEFAULT_HIGH, "bounded": True}
        limits, colon, mode = (part.strip() for part in text.partition(":"))
        if colon and mode not in ("bounded", "unbounded"):
            raise ValueError("after LOW-HIGH write unbounded, or bounded (the default)")
        low, _, high = limits.partition("-")
        low_steps = whole_number(low, "LOW", 0, _LARGEST)
        high_steps = whole_number(high, "HIGH", 0, _LARGEST)
        if low_steps > high_steps:
            raise ValueError("LOW must not be above HIGH")
        return {"low_steps": low_steps, "high_steps": high_steps, "bounded": mode != "unbounded"}

    @override
    @classmethod
    def format_options(cls, options: Mapping[str, Any]) -> str:
        limits = f"{options['low_steps']}-{options['high_steps']}"
        return limits if options["bounded"] else f"{limits}:unbounded"

    def on_push(self, worker: int, now_seconds: float) -> Release:
        if worker not in self.active:
            return NOBODY
        self._arrive(worker)
        if worker in self._last_seconds:
            self._pushes[worker] = now_seconds, now_seconds - self._last_seconds[worker]
        self._last_seconds[worker] = now_seconds
        if not self._runs_ahead(worker):
            return self._wake()
        self._waiting.discard(worker)
        return Release(tuple(sorted((worker, *self._wake().workers))))

    def add(self, worker: int) -> Release:
        """Releases `worker`, level with the slowest one, without credit or history."""
        self.credit.setdefault(worker, 0)
        return super().add(worker)

    def remove(self, worker: int) -> Release:
        self.credit.pop(worker, None)
        self._last_seconds.pop(worker, None)
        self._pushes.pop(worker, None)
        return super().remove(worker)

    def _runs_ahead(self, worker: int) -> bool:
        if self.credit[worker] > 0:
            self.credit[worker] -= 1
            return True
        if self._lead(worker) <= self._lead_steps:
            return False  # it goes on as in SSP
        if self._steps[worker] < max(self._steps.values()):
            return False
        granted = self._grant(worker)
        if granted == 0:
            return False
        # This release is the first of the granted steps; in the paper it comes on top.
        self.credit[worker] = granted - 1 if self._bounded else granted
        return True

    def _grant(self, worker: int) -> int:
        slowest = min(self._steps, key=lambda other: (self._steps[other], other))
        if worker not in self._pushes or slowest not in self._pushes:
            return 0  # one of them has no pace yet
        most = self._range_steps
        if self._bounded:
            most = min(most, self._high_steps - self._lead(worker) + 1)
        return extra_steps(self._pushes[worker], self._pushes[slowest], self._range_steps, most)
