"""Local SGD: each worker trains a replica, and all replicas are averaged periodically."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from typing_extensions import override

from syncswitch.trainers.protocols.base import (
    AfterAverage,
    Exchange,
    Release,
    decimal_text,
    whole_number,
)
from syncswitch.trainers.protocols.bsp import BSP

_ALLOWED = ", ".join(after.value for after in AfterAverage)


class LocalSGD(BSP):
    """All replicas are averaged once each worker has done the steps of a period.

    Source: Lin et al., Don't Use Large Mini-Batches, Use Local SGD (arXiv 1808.07217), whose
    post-local SGD is BSP followed by this. It equals DS-Sync with one group of all workers that
    meets every `period_steps` steps.

    Nobody waits for a worker that leaves. A worker that joins takes part from the next period on,
    which it starts from the average.

    Args:
        period_steps: H, the number of steps of each worker from one average to the next.
        after: What becomes of the workers' optimizers then.
    """

    name = "local-sgd"
    usage = "local-sgd:STEPS[:AFTER]"
    exchange = Exchange.REPLICA
    least_workers = 2
    after = AfterAverage.AVERAGED
    own: ClassVar[Mapping[str, Callable[[str], float]]] = {
        "period_steps": partial(whole_number, called="STEPS", least=1)
    }
    """How the options before AFTER are read, with colons between them."""

    _least_joined = 2

    def __init__(
        self, workers: Iterable[int], period_steps: int, after: AfterAverage | None = None
    ) -> None:
        super().__init__(workers)
        self._round_steps, self.after = period_steps, after or self.after

    @override
    @classmethod
    def parse_options(cls, text: str) -> Mapping[str, Any]:
        after = cls.after
        if text.count(":") >= len(cls.own):
            text, _, last = text.rpartition(":")
            try:
                after = AfterAverage(last.strip())
            except ValueError as error:
                raise ValueError(f"AFTER must be one of {_ALLOWED}") from error
        texts = [*text.split(":", len(cls.own) - 1), ""]  # the last one may be missing
        own = zip(cls.own.items(), texts, strict=False)
        return {**{name: read(written) for (name, read), written in own}, "after": after}

    @override
    @classmethod
    def format_options(cls, options: Mapping[str, Any]) -> str:
        after = options["after"]
        own = ":".join(decimal_text(options[name]) for name in cls.own)
        return own if after is cls.after else f"{own}:{after.value}"

    @override
    def remove(self, worker: int) -> Release:
        # Its replica is lost with it.
        self._arrived.discard(worker)
        return super().remove(worker)
