"""The completions that a shell offers when the user presses Tab.

Light at import. What cannot be found out is silently not offered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

import click
from click.shell_completion import CompletionItem

from syncswitch.storage.database.defaults import database_url

PROTOCOL_EXAMPLES = (
    "bsp",
    "asp",
    "ssp:3",
    "dssp:3-15",
    "ds-sync:2",
    "local-sgd:8",
    "qsr:4:0.1",
    "selsync:0.3",
    "gba:3",
)
"""One protocol of each kind."""


def _matching(
    names: Iterable[str], incomplete: str, *, or_files: bool = False
) -> list[CompletionItem]:
    ordered = names if isinstance(names, Sequence) else sorted(names)
    items = [CompletionItem(name) for name in ordered if name.startswith(incomplete)]
    return items or ([CompletionItem(incomplete, type="file")] if or_files else [])


def _completer(
    names: Callable[[click.Context], Iterable[str]], *, or_files: bool = False
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Makes a completion that offers matching names, or files where none matches."""
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
    """The aliases, then the versions, newest first."""
    from syncswitch.trainers.job.loading import normal_reference

    def read(names: ModuleType, url: str) -> list[str]:
        name = None if workload is None else normal_reference(workload)
        aliases, versions = names.policy_choices(url, name)
        return [*aliases, *(str(version) for version in reversed(versions))]

    return _stored(context, read)


def _stored(context: click.Context, read: Callable[[ModuleType, str], list[str]]) -> list[str]:
    """Asks the database; offers nothing where that fails."""
    url = database_url(context.params.get("storage_url"))
    try:
        from syncswitch.storage.trials import workloads as names

        return read(names, url)
    except Exception:  # the command itself will report it
        return []


def _choices_before(context: click.Context) -> list[str]:
    """The aliases and versions of the workload named before, or of all."""
    # click does not say what comes after the option that is being completed.
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
# Pairs of different protocols with common options, the most common pair first.
complete_protocols = _completer(
    lambda _: [",".join(pair) for pair in itertools.permutations(PROTOCOL_EXAMPLES, 2)]
)


def complete_policy(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offers WORKLOAD, WORKLOAD@ALIAS and WORKLOAD@VERSION from the database, or files."""
    workload, at, _rest = incomplete.partition("@")
    if not at:
        return _matching(_workloads(context), incomplete, or_files=True)
    return _matching([f"{workload}@{name}" for name in _choices(context, workload)], incomplete)
