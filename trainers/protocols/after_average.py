"""What becomes of the optimizers of replicas when their parameters are averaged."""

from __future__ import annotations

import enum


class AfterAverage(enum.Enum):
    """What becomes of the workers' optimizers when their replicas are averaged."""

    KEPT = "kept"
    """Each worker goes on with its own momentum, or other variables of the optimizer."""
    AVERAGED = "averaged"
    """All get the mean of these."""
    ZEROED = "zeroed"
    """All begin anew, with zeros."""
    NESTEROV = "nesterov"
    """They are kept, and an outer step takes the place of the average; see `outer_step`."""
    USUAL = "usual"
    """Zeroed with the built-in SGD, kept with other optimizers."""

    def with_optimizer(self, *, is_built_in: bool) -> AfterAverage:
        """Returns what `USUAL` means with an optimizer; any other one as it is."""
        if self is not AfterAverage.USUAL:
            return self
        return AfterAverage.ZEROED if is_built_in else AfterAverage.KEPT


_ALLOWED = ", ".join(one.value for one in AfterAverage)


def split_after(text: str, parts: int, usual: AfterAverage) -> tuple[str, AfterAverage]:
    """Reads what may follow the `parts` other options, after a colon; returns the rest, and it.

    Raises:
        ValueError: It is something else.
    """
    others, colon, last = text.rpartition(":")
    if not colon or text.count(":") < parts:
        return text, usual
    try:
        return others, AfterAverage(last.strip())
    except ValueError as error:
        raise ValueError(f"AFTER must be one of {_ALLOWED}") from error


def after_text(after: AfterAverage, usual: AfterAverage) -> str:
    """Writes it so that `split_after` reads the same; what is usual is left out."""
    return "" if after is usual else f":{after.value}"
