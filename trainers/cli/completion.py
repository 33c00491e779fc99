"""What the shell offers for a word on the command lines, when somebody presses Tab.

Light at import. What cannot be found out is not offered, and nobody is told.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from syncswitch.storage.database.defaults import DEFAULT_URL, ENVIRONMENT_VARIABLE

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

__all__ = [
    "complete_alias",
    "complete_compared",
    "complete_policy",
    "complete_policy_choice",
    "complete_profile",
    "complete_protocols",
    "complete_study",
    "complete_version",
    "complete_workload",
]

# A server that does not answer must not hold up a shell.
_PATIENCE_SECONDS = 3.0
_PROTOCOLS = ("bsp", "asp", "ssp:3", "dssp:3-15", "ds-sync:2", "local-sgd:8")


def complete_workload(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Built-in workloads and those of the database, else files."""
    from syncswitch.trainers.job.workload import BUILT_IN

    return _matching({*BUILT_IN, *_workloads(context)}, incomplete, or_files=True)


def complete_policy(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """`WORKLOAD` or `WORKLOAD@ALIAS` or `WORKLOAD@VERSION` of the database, else files."""
    workload, at, _rest = incomplete.partition("@")
    if not at:
        return _matching(_workloads(context), incomplete, or_files=True)
    return _matching([f"{workload}@{name}" for name in _choices(context, workload)], incomplete)


def complete_policy_choice(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Aliases and versions of the workload that stands before, or of all, else files."""
    return _matching(_choices(context, _workload_of(context)), incomplete, or_files=True)


def complete_compared(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Policies; where a workload stands before, its aliases and versions; else files."""
    before = context.params.get(parameter.name or "") or ()
    if not before or "@" in before[0] or before[0].endswith(".json"):
        return complete_policy(context, parameter, incomplete)
    return _matching(_choices(context, before[0]), incomplete, or_files=True)


def complete_alias(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Aliases of the workload that stands before, or of all."""
    names = _choices(context, _workload_of(context))
    return _matching([name for name in names if not name.isdecimal()], incomplete)


def complete_version(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Versions of the workload that stands before, or of all."""
    names = _choices(context, _workload_of(context))
    return _matching([name for name in names if name.isdecimal()], incomplete)


def complete_study(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Searches of the database."""

    def found() -> list[str]:
        from syncswitch.storage.trials.names import study_names

        return study_names(_url(context))

    return _matching(_within_patience(found), incomplete)


def complete_profile(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Profiles that come along, else files."""
    from syncswitch.trainers.simulated.profile import profile_names

    return _matching(profile_names(), incomplete, or_files=True)


def complete_protocols(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Pairs of different protocols with usual options, the usual pair first."""
    pairs = itertools.permutations(_PROTOCOLS, 2)
    return _matching([",".join(pair) for pair in pairs], incomplete)


def _matching(
    names: Iterable[str], incomplete: str, *, or_files: bool = False
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    ordered = names if isinstance(names, Sequence) else sorted(names)
    found = [CompletionItem(name) for name in ordered if name.startswith(incomplete)]
    return found or ([CompletionItem(incomplete, type="file")] if or_files else [])


def _workloads(context: click.Context) -> list[str]:
    def found() -> list[str]:
        from syncswitch.storage.trials.names import workload_names

        return workload_names(_url(context))

    return _within_patience(found)


def _choices(context: click.Context, workload: str | None) -> list[str]:
    """Aliases, then versions, the newest first."""

    def found() -> list[str]:
        from syncswitch.storage.trials.names import policy_choices
        from syncswitch.trainers.job.workload import normal_reference

        name = None if workload is None else normal_reference(workload)
        aliases, versions = policy_choices(_url(context), name)
        return [*aliases, *(str(version) for version in reversed(versions))]

    return _within_patience(found)


def _url(context: click.Context) -> str:
    given = context.params.get("storage_url")
    return str(given or os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_URL)


def _workload_of(context: click.Context) -> str | None:
    # Before the value of an option click does not tell what stands elsewhere.
    reference = context.params.get("reference")
    return None if reference is None else str(reference)


def _within_patience(read: Callable[[], list[str]]) -> list[str]:
    """What the database says, or nothing: in the middle of a command line nobody reads errors."""
    # Not in its time: it never takes for ever.
    import syncswitch.storage.trials.names  # noqa: F401

    found: list[str] = []

    def attempt() -> None:
        try:
            found.extend(read())
        except Exception:  # whatever it is, the command itself will say it
            return

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    return list(found)
