"""The command lines that use a policy, and that made a search, as words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncswitch.searcher.rules.by_name import STRATEGIES
from syncswitch.searcher.trainer_kinds.base import TrainerChoice
from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records import RunConditions, WorkloadIdentity

if TYPE_CHECKING:
    from syncswitch.storage.trials import SearchInfo

__all__ = ["is_loadable", "search_words", "use_words"]

_FLAGS = ("share_prefix", "early_stop")
_VALUES = ("baseline_runs", "least_runs", "budget", "target_runs")


def use_words(
    identity: WorkloadIdentity,
    loaded_from: str | None,
    called: str,
    version: int | None,
    conditions: RunConditions,
) -> list[str]:
    """Trains with a policy; where that cannot be, what comes nearest to it.

    Args:
        identity: The job.
        loaded_from: Normal form of how to load its workload; None for one that is built in.
        called: What the user calls it.
        version: Of the policy; None for the current one.
        conditions: Under which it was found: it is for these.
    """
    fingerprint = identity.fingerprint[:12]
    if identity.simulated_cluster is not None:
        # On a real cluster it is another job, so the policy is tried there first.
        policy = fingerprint if version is None else f"{fingerprint}@{version}"
        return ["syncswitch-search", "evaluate", policy, called, *_as_found(conditions)]
    if not is_loadable(loaded_from):
        words = ["syncswitch-search", "policy", "export", fingerprint]
        return [*words, *([] if version is None else ["--version", str(version)])]
    words = ["syncswitch-run", loaded_from or called]
    words += [] if version is None else ["--policy", str(version)]
    if identity.workers != TrainerChoice.default_workers:
        words += ["--workers", str(identity.workers)]
    return [*words, *_as_found(conditions)]


def search_words(
    identity: WorkloadIdentity, called: str, search: SearchInfo, conditions: RunConditions
) -> list[str]:
    """Makes a search again, or goes on with it; options of the trainer itself are not known.

    Args:
        identity: The job.
        called: What the user calls it.
        search: The search.
        conditions: Under which its runs train.
    """
    protocols = f"{identity.first_protocol},{identity.second_protocol}"
    strategy = search.strategy if search.strategy in STRATEGIES else "paper"
    words = ["syncswitch-search", "run", called, "--trainer", search.trainer]
    words += ["--workers", str(identity.workers), "--protocols", protocols]
    words += ["--strategy", strategy, "--settings", str(search.settings)]
    words += ["--runs", str(search.runs), "--threshold", f"{search.threshold:g}"]
    if search.target_accuracy is not None:
        words += ["--target-accuracy", f"{search.target_accuracy!r}"]
    words += ["--seed", str(search.base_seed)]
    return [*words, *_rule_words(search.options), *_as_found(conditions)]


def is_loadable(loaded_from: str | None) -> bool:
    """Whether there is something to train; an imported job is only a name."""
    from syncswitch.trainers.workload import find_module

    if loaded_from is not None:
        try:
            find_module(loaded_from)
        except WorkloadError:
            return False
    return True


def _rule_words(options: Any) -> list[str]:
    words = []
    for name in _FLAGS:
        if name in options:
            dashed = name.replace("_", "-")
            words.append(f"--{dashed}" if options[name] else f"--no-{dashed}")
    for name in _VALUES:
        if options.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", f"{options[name]:g}"]
    return [*words, *(["--warm-start"] if options.get("related") else [])]


def _as_found(conditions: RunConditions) -> list[str]:
    """A policy is for the conditions under which it was found."""
    usual = RunConditions()
    words = []
    if conditions.online != usual.online:
        words += ["--online", conditions.online]
    if conditions.switch_mechanism != usual.switch_mechanism:
        words += ["--switch", conditions.switch_mechanism]
    return words
