"""The commands that train with a policy or make a search again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.backends.base import TrainerChoice
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.storage.errors import Command, CommandHint, OptionHint, WorkloadError
from syncswitch.storage.records.job import RunConditions, ScheduledJob
from syncswitch.storage.records.metric import Metric

if TYPE_CHECKING:
    from syncswitch.storage.records.job import SearchInfo

DERIVED = {"accuracy_range", "bearing", "goes_back", "owns_momentum", "owns_optimizer", "recorded"}
"""What a strategy has from its job, trainer and database; users give all other options."""


def use_command(
    identity: ScheduledJob,
    loaded_from: str | None,
    called: str,
    version: int | None,
    conditions: RunConditions,
    profile: str | None = None,
) -> CommandHint:
    """The command that trains with a policy, or comes nearest to that.

    A workload that is `loaded_from` nowhere is built in; a user names it as it is `called`. Without
    a `version` it is the current policy, without a `profile` that of the cluster is unknown.
    """
    fingerprint = identity.fingerprint[:12]
    policy = fingerprint if version is None else f"{fingerprint}@{version}"
    if identity.simulated_cluster is not None and profile is None:
        # On a real cluster it is another job, so the policy is tried there first.
        return CommandHint(
            Command.SWEEP, (called, OptionHint("policy", policy), *_as_found(conditions))
        )
    chosen = [] if version is None else [OptionHint("policy", str(version))]
    if identity.is_command:
        return CommandHint(Command.TRAIN, (called, *_of_command(identity), *chosen))
    if not is_loadable(loaded_from):
        return CommandHint(Command.EXPORT_POLICY, (policy,))
    simulated = (
        []
        if profile is None
        else [OptionHint("trainer", "simulated"), OptionHint("profile", profile)]
    )
    is_usual = identity.workers == TrainerChoice.default_workers
    workers = [] if is_usual else [OptionHint("workers", identity.workers)]
    options = (*simulated, *chosen, *workers, *_as_found(conditions))
    return CommandHint(Command.TRAIN, (loaded_from or called, *options))


def search_command(
    identity: ScheduledJob, called: str, search: SearchInfo, conditions: RunConditions
) -> CommandHint:
    """The command that makes a search again, or goes on with it, without its trainer's own options.

    `called` is the workload, as a user names it.
    """
    # The kind may say more, for example `local/threads, 1 GPU`.
    trainer = search.trainer.partition(",")[0].partition("/")[0]
    strategy = stored_strategy(search)
    allowed, options = strategy.allowed, strategy.given_options
    options.pop(allowed.parameter, None)
    given = [
        *(_of_command(identity) if identity.is_command else [OptionHint("trainer", trainer)]),
        OptionHint("workers", identity.workers),
        *(OptionHint("protocols", pair) for pair in search.pairs or [identity.pair]),
        OptionHint("strategy", search.strategy),
        OptionHint("halvings", search.halvings),
        OptionHint("runs", search.runs),
        OptionHint(allowed.parameter, allowed.stated),
    ]
    if search.target_accuracy is not None:
        target = identity.metric.value(search.target_accuracy)
        given.append(OptionHint("target_accuracy", target))
    given.append(OptionHint("seed", search.base_seed))
    return CommandHint(
        Command.SEARCH, (called, *given, *_of_strategy(options), *_as_found(conditions))
    )


def _of_command(identity: ScheduledJob) -> list[OptionHint]:
    """The options of a training command's job, as far as a database knows them."""
    metric = identity.metric
    given = [
        OptionHint("trainer", "command"),
        OptionHint("total_steps", identity.total_worker_steps),
    ]
    if metric != Metric():
        given += [OptionHint("metric_name", metric.name), OptionHint("metric_goal", metric.goal)]
    return given if metric.unit is None else [*given, OptionHint("metric_unit", metric.unit)]


def is_loadable(loaded_from: str | None) -> bool:
    """Whether the workload can be loaded; an imported job is only a name."""
    from syncswitch.trainers.job.loading import find_module

    if loaded_from is not None:
        try:
            find_module(loaded_from)
        except WorkloadError:
            return False
    return True


def _of_strategy(options: Mapping[str, Any]) -> list[OptionHint]:
    given = {name: options[name] for name in options if name not in DERIVED}
    points = given.pop("switch_points", None)
    if points:
        given["switch_points"] = ",".join(f"{percent:g}" for percent in points)
    return [OptionHint(name, value) for name, value in given.items() if value is not None]


def _as_found(conditions: RunConditions) -> list[OptionHint]:
    usual = RunConditions()
    chosen = (
        ("online", conditions.online, usual.online),
        ("switch", conditions.switch_mechanism, usual.switch_mechanism),
    )
    return [OptionHint(name, value) for name, value, usually in chosen if value != usually]
