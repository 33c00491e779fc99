"""The configuration policy: learning rate, momentum and batch of each worker-step.

Sync-Switch paper, section IV-B. The momenta are those of the runs in the authors' repository: with
8 workers `additive` has 1/8 of mu in the first stage after the switch and mu from the eighth on,
`ramped` 1/8, 1/4, 1/2 and mu. A stage is an epoch, as in the paper's text, unless the workload sets
its length: in those runs it was 2,000 worker-steps for `additive` and 6,400 for `ramped`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from syncswitch.storage.policies.second_phases import recorded_phase
from syncswitch.storage.records.job import (
    OWN_MOMENTUM,
    OWN_OPTIMIZER,
    OWN_RULES,
    SEMI_SYNC,
    ScheduledJob,
)
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.keras_parts import (
    build_optimizer,
    build_schedule,
    check_rate,
    schedule_boundaries,
    warn_once,
)
from syncswitch.trainers.job.schedule import decay_factor, round_worker_steps
from syncswitch.trainers.job.workload import Momentum, Workload


class Configuration:
    """The hyper-parameters of one run."""

    def __init__(
        self, workload: Workload, spec: TrialSpec, examples: int, rate_at: Callable[[int], float]
    ) -> None:
        self._rate_at = rate_at
        self._workload = workload
        self.workers = spec.identity.workers
        every = (spec.identity.protocols, *spec.candidates, *spec.fallbacks)
        self._is_own = any(one.momentum_after_switch in OWN_RULES for one in every)
        is_wanted = workload.momentum_after_switch == "own"
        is_shared = is_wanted and not self._is_own and _is_push(spec.identity.second_protocol)
        # Without such an option an older run goes on.
        if is_shared and (option := _shared_option(workload)) is not None:
            warn_once(
                f"workload {workload.name!r}: the optimizer has {option}, so all workers share its"
                f" variables after the switch ({_SHARED[option]}), and an early switch may cost"
                f' accuracy; leave {option} out, or give momentum_after_switch="same" if that is'
                " meant"
            )
        self._warm_until = warm_up_worker_steps(workload)
        self.most_raise = most_raise(workload, self.workers)
        """Up to how many times a worker raises the rate of its own optimizer; see `Steering`."""
        epoch_worker_steps = examples / workload.batch_size
        self._stage_worker_steps = workload.momentum_stage_worker_steps or epoch_worker_steps

    def rate(self, worker_step: int, gradients: int) -> float:
        """Learning rate of an update with the mean of `gradients` gradients of B examples each.

        Linear scaling: n' * eta for n' gradients, up to the limit that the workload sets; also for
        a cluster that has lost members. Adaptive optimizers come to it gradually, see `WARM_UP`.
        """
        scaling: float = min(gradients, self._workload.largest_scaling or gradients)
        if worker_step < self._warm_until:
            scaling = 1 + (scaling - 1) * worker_step / self._warm_until
        return scaling * self._rate_at(worker_step)

    def batches(self, second_since: int | None) -> int:
        is_global = second_since is not None and self._workload.batch_after_switch == "global"
        return self.workers if is_global else 1

    def momentum(self, worker_step: int, second_since: int | None) -> float:
        """Momentum of the update with this worker-step; see `RunLog.second_since`."""
        mu = self._workload.momentum
        if second_since is None:
            return mu
        stages = int((worker_step - second_since) / self._stage_worker_steps)
        return momentum_after_switch(self._workload.momentum_after_switch, mu, self.workers, stages)

    def is_own(self, second_since: int | None) -> bool:
        """Whether each worker has its own momentum; see `Workload.momentum_after_switch`."""
        return self._is_own and second_since is not None

    def own_updates(self, updates: int, second_since: int | None, done: int | None) -> int:
        """The updates that the optimizer of each worker has made, after `updates` by all of them.

        They tell Adam how old its moments are. Of the pushes since the second protocol began each
        worker has made its share; `done` is the number of worker-steps, None for as many as then.
        """
        if second_since is None or done is None:
            return updates
        pushes = (done - second_since) // self.batches(second_since)
        return updates - pushes + round(pushes / self.workers)

    def bounds_steps(self, updates: int) -> bool:
        """Whether steps of own momentum have a bound, which earlier updates have to show.

        Nothing is stale where there is one worker; see `OwnSlots`.
        """
        return self.workers > 1 and self._workload.momentum > 0 and updates > 0


def momentum_rule(workload: Workload, second_protocol: str) -> str:
    """Returns the momentum after the switch as it is carried out with this protocol.

    Where no push is applied by itself there is nothing that a worker's own momentum could move; and
    some optimizers have to be shared, see `_SHARED`. Local SGD with a period counted over all
    workers has a rule of its own, as far as such jobs were recorded.
    """
    variant = workload.momentum_after_switch
    if variant != "own":
        return variant
    is_sgd = workload.optimizer is None or not is_adaptive(build_optimizer(workload))
    if is_sgd and recorded_phase(second_protocol, owns_momentum=False) is not None:
        return SEMI_SYNC
    if not _is_push(second_protocol) or _shared_option(workload) is not None:
        return "same"
    return OWN_MOMENTUM if is_sgd else OWN_OPTIMIZER


WARM_UP = 0.0625
"""The share of a job in which the rate of BSP rises from that of one worker to its own.

At n times a worker's rate an adaptive optimizer is a lottery as long as its second moments are
young: a small text transformer ended at chance or near it in 3 of 6 runs, and in none with a
warm-up (Goyal et al., "Accurate, Large Minibatch SGD", arXiv 1706.02677, section 2.2).
"""


def warm_up_worker_steps(workload: Workload) -> float:
    """Returns in how many worker-steps BSP's rate rises; 0 with SGD, or a schedule of the user's.

    A schedule has the warm-up that its job needs.
    """
    is_settled = workload.optimizer is None or callable(workload.learning_rate)
    if is_settled or not is_adaptive(build_optimizer(workload)):
        return 0.0
    return WARM_UP * workload.total_worker_steps


def most_raise(workload: Workload, workers: int) -> float:
    """Returns up to how many times an own optimizer raises its rate after the switch.

    With single batches an adaptive optimizer keeps BSP's pace at BSP's rate over the root of n
    (`Steering`); with SGD a worker's own rate does, with BSP's batch BSP's own.
    """
    if workload.optimizer is None or not is_adaptive(build_optimizer(workload)):
        return 1.0
    if workload.batch_after_switch == "global":
        return 1.0
    scaling = min(workers, workload.largest_scaling or workers)
    return max(1.0, scaling / math.sqrt(workers))


def rates_text(workload: Workload, identity: ScheduledJob) -> str | None:
    """Says before a run what becomes of an adaptive optimizer's rate; None where it stays.

    With SGD the rules of linear scaling are what everybody expects.
    """
    if workload.optimizer is None or not is_adaptive(build_optimizer(workload)):
        return None
    workers, limit = identity.workers, workload.largest_scaling
    pair = identity.first_protocol, identity.second_protocol
    before, after = (round_worker_steps(one, workers) for one in pair)
    if workload.batch_after_switch == "global":
        after = workers
    before, after = (min(one, limit or one) for one in (before, after))
    is_own = identity.momentum_after_switch == OWN_OPTIMIZER
    rate = workload.learning_rate
    return scaling_text(
        None if callable(rate) else rate,
        (before, after),
        "the largest_scaling" if before == limit else f"as {workers} workers share a batch",
        "set largest_scaling to 1",
        is_warmed=warm_up_worker_steps(workload) > 0,
        raised=most_raise(workload, workers) if is_own else 1.0,
    )


def scaling_text(
    rate: float | None,
    scales: tuple[int, int],
    why: str,
    remedy: str,
    *,
    is_warmed: bool = False,
    raised: float = 1.0,
) -> str | None:
    """Says what becomes of a learning rate before and after the switch; None where it stays.

    Args:
        rate: The user's rate; None for a schedule.
        scales: The factors on it before and after the switch.
        why: Why the first one is what it is.
        remedy: How else to have no factor, besides a lower rate.
        is_warmed: Whether the rate rises to the first one over the first part of the job.
        raised: Up to what further factor each worker raises the second one.
    """
    before, after = scales
    if before == after == raised == 1:
        return None
    given = "is multiplied by" if rate is None else f"{rate:g} as given, is"

    def scaled(factor: float) -> str:
        return f"{factor if rate is None else rate * factor:.3g}"

    reasons = [f"times {before}"] if rate is not None and before > 1 else []
    reasons += [why] if before > 1 else []
    shared = f" ({', '.join(reasons)})" if reasons else ""
    if is_warmed and before > 1:
        shared += f", rising to that over the first {100 * WARM_UP:g} % of the job,"
    raises = ""
    if raised > 1:
        raises = f", which each worker raises up to {scaled(after * raised)} as its gradients allow"
    return (
        f"the learning rate{' ' if rate is None else ', '}{given} {scaled(before)} before the"
        f" switch{shared} and {'by ' if rate is None else ''}{scaled(after)} after it{raises}; if"
        f" it is meant for all workers already, divide it, or {remedy}"
    )


def is_adaptive(optimizer: Any) -> bool:
    """Whether the steps of a Keras optimizer are about as long whatever the gradients' length."""
    from keras import optimizers

    return not isinstance(optimizer, optimizers.SGD)


def _is_push(protocol: str) -> bool:
    return round_worker_steps(protocol, workers=2) == 1


# Options of Keras optimizers with which all workers have to share the variables, and why.
_FTRL = "the rule of Ftrl"
_SHARED = {
    _FTRL: "its variables hold the parameters themselves, and not how they change",
    "use_ema": "evaluations need the averages of the parameters that all share",
    "gradient_accumulation_steps": "workers would be at different places of an accumulation"
    " whenever the mean of their variables is taken",
}


def _shared_option(workload: Workload) -> str | None:
    if workload.optimizer is None:
        return None
    from keras import optimizers

    built = build_optimizer(workload)
    if isinstance(built, optimizers.Ftrl):
        return _FTRL
    return next((name for name in _SHARED if getattr(built, name, None)), None)


def momentum_after_switch(variant: Momentum, momentum: float, workers: int, stages: int) -> float:
    """Momentum in the second protocol, in stage i after the switch."""
    factors: dict[Momentum, float] = {
        "own": 1.0,
        "same": 1.0,
        "zero": 0.0,
        "scaled": 1 / workers,
        # 2^i of thousands of stages would overflow a float.
        "ramped": min(1.0, 2 ** min(stages, 64) / workers),
        "additive": min(1.0, (stages + 1) / workers),
    }
    return momentum * factors[variant]


def rate_function(workload: Workload) -> Callable[[int], float]:
    """Returns eta, the rate of one worker, as a function of the worker-step."""
    schedule = build_schedule(workload)
    if schedule is None:
        eta, boundaries = workload.learning_rate, workload.learning_rate_boundaries
        assert not callable(eta)
        return lambda worker_step: float(eta) * decay_factor(boundaries, worker_step)
    if (stepped := schedule_boundaries(schedule)) is not None:
        first, steps = stepped
        return lambda worker_step: first * decay_factor(steps, worker_step)

    @cache  # a value takes several eager operations
    def rate_at(worker_step: int) -> float:
        rate = float(schedule(worker_step))
        check_rate(workload, rate, worker_step)
        return rate

    return rate_at


_LOOKS = 200


def highest_rate(workload: Workload, workers: int) -> float:
    """Returns the highest learning rate of a worker that steps by itself, over the whole training.

    Such a step has the rate of a round; a schedule is looked at in 200 places.
    """
    rate_at, total = rate_function(workload), workload.total_worker_steps
    rates = (rate_at(total * look // _LOOKS) for look in range(_LOOKS))
    return min(workers, workload.largest_scaling or workers) * max(rates)
