"""Completions for the command lines, when somebody presses Tab.

Light at import. What cannot be found out is not offered, and nobody is told.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

import click
from click.shell_completion import CompletionItem

from syncswitch.storage.database.defaults import DEFAULT_URL, ENVIRONMENT_VARIABLE

PROTOCOL_EXAMPLES = ("bsp", "asp", "ssp:3", "dssp:3-15", "ds-sync:2", "local-sgd:8", "gba:3")
"""One of each kind."""


def _matching(
    names: Iterable[str], incomplete: str, *, or_files: bool = False
) -> list[CompletionItem]:
    ordered = names if isinstance(names, Sequence) else sorted(names)
    found = [CompletionItem(name) for name in ordered if name.startswith(incomplete)]
    return found or ([CompletionItem(incomplete, type="file")] if or_files else [])


def _completer(
    names: Callable[[click.Context], Iterable[str]], *, or_files: bool = False
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Offers the names that begin so; where none does, perhaps files."""
    return lambda context, _, incomplete: _matching(names(context), incomplete, or_files=or_files)


def _built_in(_: click.Context) -> Iterable[str]:
    from syncswitch.trainers.job.loading import BUILT_IN

    return BUILT_IN


def _profiles(_: click.Context) -> Iterable[str]:
    from syncswitch.trainers.simulated.profile import profile_names

    return profile_names()


def _workloads(context: click.Context) -> list[str]:
    return _stored(context, lambda names, url: names.workload_names(url))


def _choices(context: click.Context, workload: str | None) -> list[str]:
    """Aliases, then versions, the newest first."""
    from syncswitch.trainers.job.loading import normal_reference

    def read(names: ModuleType, url: str) -> list[str]:
        name = None if workload is None else normal_reference(workload)
        aliases, versions = names.policy_choices(url, name)
        return [*aliases, *(str(version) for version in reversed(versions))]

    return _stored(context, read)


def _stored(context: click.Context, read: Callable[[ModuleType, str], list[str]]) -> list[str]:
    """Asks the database; names nothing where that fails, as nobody reads errors while typing."""
    url = context.params.get("storage_url") or os.environ.get(ENVIRONMENT_VARIABLE) or DEFAULT_URL
    try:
        from syncswitch.storage.trials import names

        return read(names, str(url))
    except Exception:  # whatever it is, the command itself will say it
        return []


def _choices_before(context: click.Context) -> list[str]:
    """Aliases and versions of the workload that stands before, or of all."""
    # Before the value of an option click does not tell what stands elsewhere.
    return _choices(context, context.params.get("reference"))


complete_workload = _completer(
    lambda context: {*_built_in(context), *_workloads(context)}, or_files=True
)
complete_profile = _completer(_profiles, or_files=True)
complete_study = _completer(
    lambda context: _stored(context, lambda names, url: names.study_names(url))
)
complete_policy_choice = _completer(_choices_before, or_files=True)
complete_alias = _completer(
    lambda context: [name for name in _choices_before(context) if not name.isdecimal()]
)
complete_version = _completer(
    lambda context: [name for name in _choices_before(context) if name.isdecimal()]
)
# Pairs of different protocols with usual options, the usual pair first.
complete_protocols = _completer(
    lambda _: [",".join(pair) for pair in itertools.permutations(PROTOCOL_EXAMPLES, 2)]
)


def complete_policy(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """`WORKLOAD` or `WORKLOAD@ALIAS` or `WORKLOAD@VERSION` of the database, else files."""
    workload, at, _rest = incomplete.partition("@")
    if not at:
        return _matching(_workloads(context), incomplete, or_files=True)
    return _matching([f"{workload}@{name}" for name in _choices(context, workload)], incomplete)
