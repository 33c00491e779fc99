"""Local SGD: each worker trains a replica, and all replicas are averaged periodically."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from typing_extensions import override

from syncswitch.trainers.protocols.base import (
    NOBODY,
    AfterAverage,
    Exchange,
    Release,
    decimal_text,
    whole_number,
)
from syncswitch.trainers.protocols.bsp import BSP

_AFTERS = {after.value: after for after in AfterAverage}


def grown_steps(least_steps: int, full_steps: int, done: int, second_since: int) -> int:
    """Returns the steps from one average to the next, of a period that grows from one to H.

    It doubles whenever as many worker-steps are done as before: two from the switch on, four once
    twice as many are done, eight once four times as many are. So the period before the switch, in
    BSP, is of one step, and a switch at 1 % reaches eight at 4 %. Without steps before the switch
    there is nothing to grow from.

    Args:
        least_steps: The steps up to which it grows.
        full_steps: The steps from then on.
        done: Worker-steps that are done.
        second_since: The worker-step of the switch.
    """
    if second_since < 1:
        return full_steps
    grown: int = 1 << (done // second_since).bit_length()
    return grown if grown < least_steps else full_steps


class LocalSGD(BSP):
    """All replicas are averaged once each worker has done the steps of a period.

    Source: Lin et al., Don't Use Large Mini-Batches, Use Local SGD (arXiv 1808.07217), whose
    post-local SGD is BSP followed by this. It equals DS-Sync with one group of all workers that
    meets every `period_steps` steps.

    Nobody waits for a worker that leaves. A worker that joins takes part from the next period on,
    which it starts from the average.

    *Semi-synchronous*, a period is a pool of n H steps of which each worker takes another one when
    it has finished one: fast workers make more of them, and nobody waits for more than one step.
    All replicas weigh the same, so that each gradient counts as it does otherwise; that of a slow
    worker has moved less. A worker that ends no step in a whole period, while others do its share,
    is not waited for, and nobody waits for longer than the period has taken until then: who is at a
    step still is in the average after it. Equal workers make H steps each, as otherwise. After
    Stripelis et al., Semi-Synchronous Federated Learning (arXiv 2102.02849), and the dynamic local
    updates of Liu et al., Asynchronous Local-SGD Training for Language Modeling (arXiv 2401.09135);
    without known speeds or an outer optimizer.

    Args:
        period_steps: H, the number of steps of each worker from one average to the next.
        after: What becomes of the workers' optimizers then.
        is_semi_synchronous: Whether the steps of a period are counted over all workers together.
        is_growing: Whether the period grows from the switch on, see `grown_steps`.
    """

    name = "local-sgd"
    usage = "local-sgd:STEPS[:AFTER][:semi-sync][:growing]"
    exchange = Exchange.REPLICA
    least_workers = 2
    after = AfterAverage.AVERAGED
    own: ClassVar[Mapping[str, Callable[[str], float]]] = {
        "period_steps": partial(whole_number, called="STEPS", least=1)
    }
    """How the options before AFTER are read, with colons between them."""
    words: ClassVar[Mapping[str, str]] = {
        "semi-sync": "is_semi_synchronous",
        "growing": "is_growing",
    }
    """The words that may follow, each with the argument that it makes true."""

    _least_joined = 2

    def __init__(
        self,
        workers: Iterable[int],
        period_steps: int,
        after: AfterAverage | None = None,
        *,
        is_semi_synchronous: bool = False,
        is_growing: bool = False,
    ) -> None:
        super().__init__(workers)
        self._least_steps = self._period_steps = period_steps
        self.after = after or self.after
        self._is_semi_synchronous, self._is_growing = is_semi_synchronous, is_growing
        self._done = self._second_since = 0
        # Of this period: what each member has not taken of its H steps, and all of these together;
        # and the members that have ended a step in it.
        self._left: dict[int, int] = {}
        self._pool = 0
        self._ended: set[int] = set()
        # When the last push came; when this period began, or the first push came; and since when
        # somebody waits for its end.
        self._now_seconds: float | None = None
        self._began_seconds: float | None = None
        self._waiting_seconds = math.inf

    @override
    @classmethod
    def parse_options(cls, text: str) -> Mapping[str, Any]:
        texts = text.split(":")
        count = len(cls.own)
        numbers = [*texts[:count], *[""] * (count - len(texts))]  # the last one may be missing
        own = zip(cls.own.items(), numbers, strict=True)
        options: dict[str, Any] = {name: read(written) for (name, read), written in own}
        options["after"] = cls.after
        further = [word.strip() for word in texts[count:]]
        for word in further:
            if word in cls.words:
                options[cls.words[word]] = True
            elif word in _AFTERS:
                options["after"] = _AFTERS[word]
            if word not in {*cls.words, *_AFTERS} or further.count(word) > 1:
                raise ValueError(f"AFTER must be one of {', '.join(_AFTERS)}")
        if len(_AFTERS.keys() & further) > 1:
            raise ValueError(f"AFTER must be only one of {', '.join(_AFTERS)}")
        if options["after"] is AfterAverage.NESTEROV and options.get("is_semi_synchronous"):
            # Its outer momentum would differ on a worker that is in fewer averages.
            raise ValueError("with semi-sync AFTER must be kept, averaged or zeroed")
        return options

    @override
    @classmethod
    def format_options(cls, options: Mapping[str, Any]) -> str:
        after = options["after"]
        texts = [decimal_text(options[name]) for name in cls.own]
        texts += [] if after is cls.after else [after.value]
        return ":".join([*texts, *(word for word, name in cls.words.items() if options.get(name))])

    @override
    def place(self, done: int, second_since: int | None) -> None:
        self._done, self._second_since = done, second_since or 0

    @override
    @property
    def next_seconds(self) -> float:
        if not (self._is_semi_synchronous and self._arrived) or self._began_seconds is None:
            return math.inf
        taken_seconds = self._waiting_seconds - self._began_seconds
        return self._waiting_seconds + taken_seconds if taken_seconds > 0 else math.inf

    @override
    def on_time(self, now_seconds: float) -> Release:
        self._now_seconds = now_seconds
        return self._next_round() if now_seconds >= self.next_seconds else NOBODY

    @override
    def on_push(self, worker: int, now_seconds: float) -> Release:
        self._now_seconds = now_seconds
        if self._began_seconds is None:
            self._began_seconds = now_seconds
        release = super().on_push(worker, now_seconds)
        if self._arrived:
            self._waiting_seconds = min(self._waiting_seconds, now_seconds)
        return release

    @override
    def remove(self, worker: int) -> Release:
        # Its replica is lost with it. What it has left of its steps is not for others to do.
        self._arrived.discard(worker)
        self._pool -= max(0, self._left.pop(worker, 0))
        return super().remove(worker)

    @override
    def _goes_on(self, worker: int) -> bool:
        self._done += 1
        self._ended.add(worker)
        if (self._pool if self._is_semi_synchronous else self._left[worker]) <= 0:
            return False
        self._take(worker)
        return True

    @override
    def _is_over(self) -> bool:
        if not self._is_semi_synchronous or self._pool > 0:
            return super()._is_over()
        # Others have done what such a worker has left.
        late = {one for one in self._at_work - self._ended if self._left[one] > 0}
        return late == self._at_work

    @override
    def _next_round(self) -> Release:
        release = super()._next_round()
        self._began_seconds, self._waiting_seconds = self._now_seconds, math.inf
        steps = self._period_steps
        if self._is_growing:
            steps = grown_steps(self._least_steps, steps, self._done, self._second_since)
        self._left, self._ended = dict.fromkeys(self.active, steps), set()
        self._pool = steps * len(self.active)
        for worker in release.workers:
            self._take(worker)
        return release

    def _take(self, worker: int) -> None:
        self._left[worker] -= 1
        self._pool -= 1
