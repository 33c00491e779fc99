"""The second way of training and the state of a run, for both callbacks.

Only this module and the callbacks import PyTorch.
"""

# No annotations from the future here: DDP compares those of its hook with classes.
import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from syncswitch.storage.errors import OptionHint, UserError
from syncswitch.trainers.loop_switch import LoopSwitch
from syncswitch.trainers.protocols import AveragePeriod

_log = logging.getLogger("syncswitch")

_LOST = (
    "what was trained after it, as the trainer saves a checkpoint there, and the time to load it"
)


# In the state of PyTorch's optimizers.
_SECOND_MOMENTS = ("exp_avg_sq", "square_avg")


class SecondWay:
    """A second way of training, for subclasses; all processes call the same methods."""

    def attach(self, model: nn.Module) -> None:
        """Takes the wrapped model when its training begins or goes on."""

    def take_optimizers(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Takes the optimizers of the model; called before each step, ahead of `use`."""

    def use(self, is_second: bool) -> None:
        """Called before each step, of every run; `is_second` tells in which way it is made.

        So it is in a run that never switches, that goes on after a kill, or that has gone back.
        """

    def after_step(self, step: int, rate: float) -> None:
        """Called after each step in the second way; `step` counts all steps so far.

        `rate` is the learning rate of the step, the highest one of several.
        """

    def settle(self) -> None:
        """Called in the second way before a test or checkpoint, and after the last step."""


class LocalSgd(SecondWay):
    """Post-local SGD: each process trains its own model, and they are averaged now and then.

    Source: Lin et al., Don't Use Large Mini-Batches, Use Local SGD (ICLR 2020). A communication
    hook of DDP exchanges gradients in the first way, as DDP does, and none in the second. The
    models are averaged `period` steps after the last average, and before they are tested or saved,
    so that rank 0 tests and saves the mean. So are momentum and other optimizer state.

    Args:
        period: Steps from one average to the next, or `qsr:STEPS:ALPHA`; see `AveragePeriod`.
            Language models lose accuracy with longer ones, other jobs save more with them.
        optimizer: `kept` lets each process keep its own momentum and other optimizer state, which
            an average then need not send.
        rate: Factor on the learning rate in the second way, whatever its schedule says; None for
            the root of the number of processes with Adam and the like, and 1 with others. The
            second moments are those of single batches then, and make steps as much shorter.

    Raises:
        UserError: One of them is out of range.
    """

    def __init__(
        self, period: int | str = 4, optimizer: str = "averaged", rate: float | None = None
    ) -> None:
        self._period = AveragePeriod(period)
        if optimizer not in ("averaged", "kept"):
            raise UserError(
                f"optimizer is {optimizer!r}: give 'averaged' or 'kept'", code="parameter-invalid"
            )
        if rate is not None and not 0 < rate < math.inf:
            raise UserError(f"rate is {rate:g}: give a number above 0", code="parameter-invalid")
        self._is_kept, self._rate, self._is_told = optimizer == "kept", rate, False
        self._optimizers: Sequence[torch.optim.Optimizer] = ()
        self._raised = WeakKeyDictionary[torch.optim.Optimizer, list[Any]]()
        self._is_local = False
        self._model: nn.Module | None = None

    def attach(self, model: nn.Module) -> None:
        self._period.restart()
        if model is self._model:
            return
        self._model = model
        if isinstance(model, DistributedDataParallel):
            try:
                model.register_comm_hook(model.process_group, self._exchange)
            except RuntimeError as error:
                raise UserError(
                    "LocalSgd needs DDP's communication hook, and the model has one already; leave"
                    " that one out, or register it in your own SecondWay"
                ) from error
        elif dist.is_initialized() and dist.get_world_size() > 1:
            raise UserError(
                f"LocalSgd needs a model in DistributedDataParallel, and this one is a"
                f" {type(model).__name__}; train with DDP, or give your own SecondWay"
            )

    def take_optimizers(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = () if self._is_kept else optimizers
        for one in optimizers:
            own = getattr(one, "optimizer", one)  # in that of Accelerate
            if own not in self._raised:
                self._raised[own] = []
                own.register_step_pre_hook(self._raise)
                own.register_step_post_hook(self._lower)

    # Only within a step, as schedules may go by the rate of the step before.
    def _raise(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        factor = self._factor(optimizer) if self._is_local else 1.0
        if factor != 1:
            self._raised[optimizer] = [group["lr"] for group in optimizer.param_groups]
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * factor

    def _lower(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group, rate in zip(optimizer.param_groups, self._raised[optimizer], strict=False):
            group["lr"] = rate
        self._raised[optimizer] = []

    def _factor(self, optimizer: torch.optim.Optimizer) -> float:
        if self._rate is not None or not isinstance(self._model, DistributedDataParallel):
            return self._rate or 1.0
        state: dict[str, Any] = next(iter(optimizer.state.values()), {})
        if not any(name.startswith(_SECOND_MOMENTS) for name in state):
            return 1.0
        factor = math.sqrt(dist.get_world_size(self._model.process_group))
        if not self._is_told and dist.get_rank() == 0:
            _log.warning(
                "each process trains with %.3g times the learning rate in the second way, the root"
                " of the number of processes, as %s sees single batches there; LocalSgd(rate=1)"
                " leaves it",
                factor,
                type(optimizer).__name__,
            )
        self._is_told = True
        return factor

    def use(self, is_second: bool) -> None:
        if not is_second:
            self._period.restart()
        self._is_local = is_second

    def after_step(self, step: int, rate: float) -> None:
        if self._period.ends(rate):
            self.settle()

    def settle(self) -> None:
        """Averages the models in place, as a checkpoint in progress holds the same memory."""
        self._period.restart()
        if not isinstance(self._model, DistributedDataParallel):
            return
        trained = [one for one in self._model.parameters() if one.requires_grad]
        group = self._model.process_group
        for tensors in (trained, *_states(self._optimizers, trained)):
            _average(tensors, trained, group)

    def _exchange(
        self, group: dist.ProcessGroup, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        if not self._is_local:
            return allreduce_hook(group, bucket)
        own = torch.futures.Future[torch.Tensor]()
        own.set_result(bucket.buffer())
        return own


def _states(
    optimizers: Iterable[torch.optim.Optimizer], trained: Sequence[nn.Parameter]
) -> Iterable[list[torch.Tensor | None]]:
    """Yields the momenta of these parameters, then other tensors that optimizers keep of each."""
    found: dict[str, dict[nn.Parameter, torch.Tensor]] = {}
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                # A step is a number of the optimizer's, even where the parameter is one as well.
                if torch.is_tensor(value) and value.shape == parameter.shape and name != "step":
                    found.setdefault(name, {})[parameter] = value
    for name in sorted(found):
        yield [found[name].get(one) for one in trained]


def _average(
    tensors: Sequence[torch.Tensor | None],
    trained: Sequence[nn.Parameter],
    group: dist.ProcessGroup,
) -> None:
    """Averages tensors, each as long as its parameter, in place; what is missing counts as 0."""
    with torch.no_grad():
        filled = [
            torch.zeros_like(parameter) if own is None else own
            for own, parameter in zip(tensors, trained, strict=True)
        ]
        mean = torch.cat([one.reshape(-1) for one in filled]) / dist.get_world_size(group)
        dist.all_reduce(mean, group=group)
        means = mean.split([one.numel() for one in filled])
        for tensor, own in zip(filled, means, strict=True):
            tensor.copy_(own.view_as(tensor))


class TrainerSwitch:
    """A `LoopSwitch` for a trainer that goes back by resuming from one of its checkpoints.

    Attributes:
        back: The checkpoint from which the trainer has to resume; None if it goes on.
        saved: The checkpoints at the switches, by their step.
        tested_step: Steps done at the last test.
    """

    def __init__(
        self,
        policy: str | Path | None,
        metric: str,
        seed: int,
        second_way: SecondWay | None = None,
        *,
        switch_at: float | None = None,
        metric_goal: str | None = None,
    ) -> None:
        self._began: float | None = None
        self._switch = LoopSwitch(
            policy,
            switch_at=switch_at,
            seed=seed,
            clock=lambda: 0.0 if self._began is None else time.monotonic() - self._began,
            metric_name=metric,
            metric_goal=metric_goal,
        )
        self._metric, self._second_way = metric, second_way or LocalSgd()
        self._is_second = False
        self._rate = 0.0
        self.saved: dict[str, str] = {}
        self.back: str | None = None
        self.tested_step = -1
        self._total_steps = 0
        self._has_told_missing = False

    @property
    def may_go_back(self) -> bool:
        return self._switch.may_go_back

    def check_callbacks(self, callbacks: Iterable[object]) -> None:
        for one in callbacks if self.may_go_back else ():
            name = type(one).__name__
            if name.startswith("EarlyStopping"):
                raise UserError(
                    f"{name} may end the training before the three evaluations that the guard needs"
                    " after the switch; leave it out, as the policy knows how long the job is"
                )

    @property
    def is_watched_from_outside(self) -> bool:
        return self._switch.is_watched_from_outside

    @property
    def is_optional(self) -> bool:
        """Whether the training can do without the metric: nothing is guarded, nobody waits."""
        return not (self.may_go_back or self.is_watched_from_outside)

    def goes_untested(self, why: str, *, is_end_tested: bool = False) -> None:
        """See `LoopSwitch.goes_untested`."""
        if self.is_watched_from_outside and not is_end_tested:
            raise UserError(f"{why}, and the run that this is part of needs one")
        self._switch.goes_untested(why, is_end_tested=is_end_tested)

    def begin(self, model: nn.Module, total_steps: float) -> None:
        if not math.isfinite(total_steps):
            raise UserError("the trainer makes steps without end: give it max_steps or max_epochs")
        self._total_steps = int(total_steps)
        self._switch.set_length(self._total_steps, _LOST)
        expected = self._switch.total_steps
        if expected not in (None, total_steps):
            raise UserError(
                f"the policy is for {expected:,} steps, and the trainer makes {total_steps:,}",
                remedy=(
                    f"train with max_steps={expected}",
                    OptionHint("total_steps", total_steps, "find a policy with"),
                ),
                code="policy-unfit",
            )
        self._second_way.attach(model)
        self._is_second = False
        if self._began is None:
            self._began = time.monotonic()

    def before_step(self, step: int, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._second_way.take_optimizers(optimizers)
        self._rate = max(group["lr"] for one in optimizers for group in one.param_groups)
        self._is_second = self._switch.is_second(step)
        self._second_way.use(self._is_second)

    def after_step(self, step: int) -> None:
        if self._is_second:
            self._second_way.after_step(step, self._rate)

    def settle(self) -> None:
        if self._is_second:
            self._second_way.settle()

    def saves_at(self, step: int) -> bool:
        """Returns True if the trainer has to save a checkpoint now, to `remember`."""
        return self.back is None and self._switch.saves_at(step) and self.may_go_back

    def remember(self, step: int, checkpoint: str) -> None:
        """Records the path of the checkpoint at a switch, before or after it is saved."""
        self.saved[str(step)] = checkpoint

    def end(self, step: int) -> None:
        """Says what a training that ended `step` steps after its start came to, if nothing else."""
        if self.back is None and step < self._total_steps and self._is_chief:
            at = self._switch.switch_step
            before = "" if at is None or step > at else f", before its switch at step {at:,}"
            _log.warning(
                "the training ended after step %s of %s%s: it is not recorded",
                f"{step:,}",
                f"{self._total_steps:,}",
                before,
            )

    def report(self, step: int, metrics: Mapping[str, Any]) -> bool:
        """Takes a test, in all processes; returns True if the trainer has to stop and go `back`."""
        if self._metric not in metrics:
            missing = UserError(
                f"there is no {self._metric!r} among what was measured:"
                f" {', '.join(sorted(metrics)) or 'nothing'}; log it, or name another",
                code="result-invalid",
            )
            # What is trained to its end is worth more than a test.
            if step < self._total_steps and not self.is_optional:
                raise missing
            if not self._has_told_missing and self._is_chief:
                _log.warning("%s", missing)
            self._has_told_missing = True
            return False
        if self.back is not None or step == self.tested_step:
            return False
        self.tested_step = step
        to = self._switch.report(step, float(metrics[self._metric]))
        if to is None:
            return False
        self.back, self.tested_step = self.saved[str(to)], -1
        return True

    @property
    def _is_chief(self) -> bool:
        return not dist.is_initialized() or dist.get_rank() == 0

    def state_dict(self) -> dict[str, Any]:
        """Returns the state to go on after a kill, as JSON."""
        return {"switch": self._switch.state_dict(), "saved": dict(self.saved), "back": self.back}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._switch.load_state_dict(state["switch"])
        self.saved |= state["saved"]
        self.back = state["back"]
