"""The command lines that train with a policy or make a search again, as lists of words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncswitch.searcher.backends.base import TrainerChoice
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.metric import Metric

if TYPE_CHECKING:
    from syncswitch.storage.records.job import SearchInfo

_FLAGS = ("share_prefix", "early_stop")
_VALUES = ("keep", "uses", "baseline_runs", "least_runs", "budget", "target_runs")


def use_words(
    identity: WorkloadIdentity,
    loaded_from: str | None,
    called: str,
    version: int | None,
    conditions: RunConditions,
    profile: str | None = None,
) -> list[str]:
    """The command that trains with a policy, or comes nearest to that.

    A workload that is `loaded_from` nowhere is built in; a user names it as it is `called`. Without
    a `version` it is the current policy, without a `profile` that of the cluster is unknown.
    """
    fingerprint = identity.fingerprint[:12]
    policy = fingerprint if version is None else f"{fingerprint}@{version}"
    if identity.simulated_cluster is not None and profile is None:
        # On a real cluster it is another job, so the policy is tried there first.
        words = ["syncswitch-search", "sweep", called, "--policy", policy]
        return [*words, *_as_found(conditions)]
    if identity.is_command:
        words = ["syncswitch-run", called, *_command_words(identity)]
        return words if version is None else [*words, "--policy", str(version)]
    if not is_loadable(loaded_from):
        return ["syncswitch-search", "policy", "export", policy]
    words = ["syncswitch-run", loaded_from or called]
    words += [] if profile is None else ["--trainer", "simulated", "--profile", profile]
    words += [] if version is None else ["--policy", str(version)]
    if identity.workers != TrainerChoice.default_workers:
        words += ["--workers", str(identity.workers)]
    return [*words, *_as_found(conditions)]


def search_words(
    identity: WorkloadIdentity, called: str, search: SearchInfo, conditions: RunConditions
) -> list[str]:
    """The command that makes a search again, or goes on with it, without its trainer's own options.

    `called` is the workload, as a user names it.
    """
    # The kind may say more, for example `local/threads, 1 GPU`.
    trainer = search.trainer.partition(",")[0].partition("/")[0]
    words = ["syncswitch-search", "run", called]
    words += _command_words(identity) if identity.is_command else ["--trainer", trainer]
    words += ["--workers", str(identity.workers)]
    for pair in search.pairs or [identity.pair]:
        words += ["--protocols", pair]
    words += ["--strategy", search.strategy, "--settings", str(search.settings)]
    words += ["--runs", str(search.runs)]
    options = stored_strategy(search).given_options
    if not options.get("threshold_runs"):
        words += ["--threshold", f"{search.threshold:g}"]
    if search.target_accuracy is not None:
        target = identity.decided_by.value(search.target_accuracy)
        words += ["--target-accuracy", f"{target!r}"]
    words += ["--seed", str(search.base_seed)]
    return [*words, *_strategy_words(options), *_as_found(conditions)]


def _command_words(identity: WorkloadIdentity) -> list[str]:
    """The options of a training command's job, as far as a database knows them."""
    metric = identity.decided_by
    words = ["--trainer", "command", "--total-steps", str(identity.total_worker_steps)]
    if metric != Metric():
        words += ["--metric-name", metric.name, "--metric-goal", metric.goal]
    return words if metric.unit is None else [*words, "--metric-unit", metric.unit]


def is_loadable(loaded_from: str | None) -> bool:
    """Whether the workload can be loaded; an imported job is only a name."""
    from syncswitch.trainers.job.loading import find_module

    if loaded_from is not None:
        try:
            find_module(loaded_from)
        except WorkloadError:
            return False
    return True


def _strategy_words(options: Any) -> list[str]:
    words = []
    for name in _FLAGS:
        if name in options:
            dashed = name.replace("_", "-")
            words.append(f"--{dashed}" if options[name] else f"--no-{dashed}")
    if not options.get("guarded", True):
        words.append("--no-guard")
    if options.get("switch_points"):
        words += ["--grid", ",".join(f"{percent:g}" for percent in options["switch_points"])]
    for name in _VALUES:
        if options.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", f"{options[name]:g}"]
    return words


def _as_found(conditions: RunConditions) -> list[str]:
    """The options for the conditions under which a policy was found."""
    usual = RunConditions()
    words = []
    if conditions.online != usual.online:
        words += ["--online", conditions.online]
    if conditions.switch_mechanism != usual.switch_mechanism:
        words += ["--switch", conditions.switch_mechanism]
    return words
