"""How many steps a training loop makes from one average of its replicas to the next."""

from __future__ import annotations

from contextlib import suppress

from syncswitch.storage.errors import UserError
from syncswitch.trainers.protocols.base import AfterAverage
from syncswitch.trainers.protocols.choice import choose_protocol
from syncswitch.trainers.protocols.local_sgd import LocalSGD
from syncswitch.trainers.protocols.qsr import QSR, period_steps


class AveragePeriod:
    """Tells a loop after which of its local steps the replicas are averaged.

    All processes ask it after the same steps, with the same rates, and get the same answers. The
    steps count from the last average, whatever it was made for.

    ```
    period = AveragePeriod("qsr:8:0.05")
    ...
    if is_local and period.ends(rate):
        average(model)
    ```

    Args:
        period: A number of steps, or `qsr:STEPS:ALPHA`, the quadratic synchronization rule: the
            lower the rate, the rarer the averages, see `period_steps`.

    Raises:
        UserError: It is neither.
    """

    def __init__(self, period: int | str) -> None:
        text = str(period).strip()
        with suppress(UserError):
            choice = choose_protocol(text if ":" in text else f"{LocalSGD.name}:{text}")
            # What becomes of the momenta is the loop's own affair, and its processes step alike.
            words = {*(one.value for one in AfterAverage), *LocalSGD.words}
            if choice.kind in (LocalSGD, QSR) and words.isdisjoint(
                word.strip() for word in text.lower().split(":")
            ):
                self._least_steps = next(iter(choice.options.values()))
                self._alpha = choice.options.get("alpha", 0.0)
                self._done, self._steps = 0, self._least_steps
                return
        raise UserError(
            f"period is {period!r}: give a number of steps from 1, or qsr:STEPS:ALPHA",
            code="parameter-invalid",
        )

    def ends(self, rate: float) -> bool:
        """Counts a local step that was made at this rate; True if an average follows.

        The rate of the first step after an average decides how long the period is.
        """
        if self._done == 0 and self._alpha:
            self._steps = period_steps(self._least_steps, self._alpha, rate)
        self._done += 1
        if self._done < self._steps:
            return False
        self.restart()
        return True

    def restart(self) -> None:
        """Begins a period, as the replicas have just been averaged for something else."""
        self._done = 0
