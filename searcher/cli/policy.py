"""`syncswitch-search policy`: looks up, lists, exports and rolls back timing policies.

Needs neither TensorFlow nor Optuna, nor the user's workload file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from syncswitch.storage.errors import PolicyError
from syncswitch.trainers.console import (
    EXIT_FAILED,
    EXIT_OK,
    common_options,
    print_error,
    print_json,
    print_table,
    protocols_option,
    workers_option,
)

if TYPE_CHECKING:
    from syncswitch.storage.policies import PolicyRegistry
    from syncswitch.storage.records import TimingPolicy

__all__ = ["policy"]

_HOW_TO_CHOOSE = "choose with --workers, --protocols or the fingerprint"

_F = TypeVar("_F", bound=Callable[..., object])


@click.group()
def policy() -> None:
    """Looks up, lists, exports and rolls back timing policies.

    WORKLOAD is a name, file.py:attribute, package.module:attribute, or 8 or more digits of a
    fingerprint.
    """


def _selection(function: _F) -> _F:
    """WORKLOAD and what narrows it."""
    for decorate in (protocols_option(None), workers_option(None)):
        function = decorate(function)
    return click.argument("reference", metavar="WORKLOAD")(function)


@policy.command()
@_selection
@click.option("--alias", default="current", show_default=True, help="Which version, by its alias.")
@common_options
def lookup(
    reference: str,
    workers: int | None,
    protocols: str | None,
    alias: str,
    storage_url: str,
    as_json: bool,
) -> int:
    """Prints the policy of WORKLOAD. Exit status 1 where there is none."""
    from syncswitch.searcher.cli.render import print_policy
    from syncswitch.storage.policy_file import policy_to_dict

    if _is_missing(storage_url):
        print_error(_none_found(reference, workers, protocols, storage_url))
        return EXIT_FAILED
    with _registry(storage_url) as registry:
        found = _lookup(registry, reference, workers, protocols, alias)
        if not found:
            message = _none_found(reference, workers, protocols, storage_url)
            others = _near_misses(registry, reference)
            print_error(
                _no_alias(registry, reference, workers, protocols, alias) or f"{message}{others}"
            )
            return EXIT_FAILED
        newest = _newest(found)
        names = _aliases_of(registry, newest)
    if as_json:
        print_json(policy_to_dict(newest))
    else:
        print_policy(newest, names, with_evidence=False)
    return EXIT_OK


@policy.command(name="list")
@click.argument("reference", metavar="[WORKLOAD]", required=False)
@common_options
def list_policies(reference: str | None, storage_url: str, as_json: bool) -> int:
    """Lists all versions, newest first."""
    from syncswitch.storage.policy_file import policy_to_dict
    from syncswitch.trainers.workload import normal_reference

    with _registry(storage_url) as registry:
        selector = None if reference is None else normal_reference(reference)
        found = registry.policies(workload=selector)
        aliases = {(p.fingerprint, p.version): _aliases_of(registry, p) for p in found}
    if as_json:
        print_json(
            [{**policy_to_dict(p), "aliases": aliases[p.fingerprint, p.version]} for p in found]
        )
    elif not found:
        click.echo("no policies here; find one with: syncswitch-search run WORKLOAD")
    else:
        columns = ["workload", "fingerprint", "version", "aliases", "workers", "protocols"]
        print_table(
            [*columns, "switch at", "accuracy", "created"],
            [_policy_cells(p, aliases[p.fingerprint, p.version]) for p in found],
        )
    return EXIT_OK


@policy.command()
@_selection
@click.option("--version", type=int, help="Default: the current one.")
@common_options
def show(
    reference: str,
    workers: int | None,
    protocols: str | None,
    version: int | None,
    storage_url: str,
    as_json: bool,
) -> int:
    """Shows one policy with the runs that it rests on."""
    from syncswitch.searcher.cli.render import print_policy
    from syncswitch.storage.policy_file import policy_to_dict

    with _registry(storage_url) as registry:
        newest = _newest(_existing(registry, reference, workers, protocols))
        found = _version_of(registry, newest, version)
        names = _aliases_of(registry, found)
    if as_json:
        print_json({**policy_to_dict(found), "aliases": names})
    else:
        print_policy(found, names, with_evidence=True)
    return EXIT_OK


@policy.command()
@_selection
@click.option("--version", type=int, help="Default: the current one.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. Default: standard output.",
)
@common_options
def export(
    reference: str,
    workers: int | None,
    protocols: str | None,
    version: int | None,
    output: Path | None,
    storage_url: str,
    as_json: bool,
) -> int:
    """Writes a policy as a file that syncswitch-run takes with --policy."""
    from syncswitch.storage.policy_file import policy_text, write_policy

    with _registry(storage_url) as registry:
        only = _only(_existing(registry, reference, workers, protocols))
        found = _version_of(registry, only, version)
    if output is None:
        click.echo(policy_text(found), nl=False)
        return EXIT_OK
    write_policy(output, found)
    if as_json:
        print_json({"path": str(output), "version": found.version})
    else:
        click.echo(f"version {found.version} for {found.workload} written to {output}")
    return EXIT_OK


@policy.command(name="alias")
@click.argument("reference", metavar="WORKLOAD")
@click.argument("alias")
@click.argument("version", type=int)
@workers_option(None)
@protocols_option(None)
@common_options
def move_alias(
    reference: str,
    alias: str,
    version: int,
    workers: int | None,
    protocols: str | None,
    storage_url: str,
    as_json: bool,
) -> int:
    """Points ALIAS at VERSION; `alias WORKLOAD current N` rolls back."""
    with _registry(storage_url) as registry:
        found = _only(_existing(registry, reference, workers, protocols))
        before = registry.aliases(found.fingerprint).get(alias)
        registry.set_alias(found.fingerprint, alias, version)
    if as_json:
        print_json(
            {
                "fingerprint": found.fingerprint,
                "alias": alias,
                "version": version,
                "previous_version": before,
            }
        )
    else:
        was = "" if before is None else f" (was version {before})"
        click.echo(f"{found.workload}: {alias} is version {version}{was}")
    return EXIT_OK


@contextmanager
def _registry(url: str) -> Iterator[PolicyRegistry]:
    from syncswitch.storage.engine import open_database
    from syncswitch.storage.policies import PolicyRegistry

    with open_database(url, create=False) as database:
        yield PolicyRegistry(database)


def _is_missing(url: str) -> bool:
    from syncswitch.storage.inspection import parse_url, sqlite_path

    path = sqlite_path(parse_url(url))
    return path is not None and not path.exists()


def _lookup(
    registry: PolicyRegistry,
    reference: str,
    workers: int | None,
    protocols: str | None,
    alias: str = "current",
) -> list[TimingPolicy]:
    from syncswitch.trainers.protocols import parse_pair
    from syncswitch.trainers.workload import normal_reference

    return registry.lookup(
        normal_reference(reference),
        workers=workers,
        protocols=None if protocols is None else parse_pair(protocols),
        alias=alias,
    )


def _existing(
    registry: PolicyRegistry, reference: str, workers: int | None, protocols: str | None
) -> list[TimingPolicy]:
    """The current policies that fit, newest first; at least one."""
    found = _lookup(registry, reference, workers, protocols)
    if not found:
        raise PolicyError(
            f"no policy for {reference!r}{_near_misses(registry, reference)};"
            " see: syncswitch-search policy list"
        )
    return found


def _newest(found: list[TimingPolicy]) -> TimingPolicy:
    """For people, who are told of the others."""
    if len(found) > 1:
        click.echo(
            f"the newest of {len(found)}, for {found[0].cluster}; others:"
            f" {_named(found[1:])}; {_HOW_TO_CHOOSE}",
            err=True,
        )
    return found[0]


def _only(found: list[TimingPolicy]) -> TimingPolicy:
    """For what is going to be used: there the newest of several would be a guess."""
    if len(found) > 1:
        raise PolicyError(
            f"{len(found)} policies of {found[0].workload!r} fit: {_named(found)}; {_HOW_TO_CHOOSE}"
        )
    return found[0]


def _version_of(registry: PolicyRegistry, found: TimingPolicy, version: int | None) -> TimingPolicy:
    if version is None or version == found.version:
        return found
    chosen = registry.get(found.fingerprint, version)
    if chosen is None:
        known = [p.version for p in registry.policies(workload=found.fingerprint)]
        raise PolicyError(
            f"{found.workload} has no version {version};"
            f" it has {', '.join(str(number) for number in sorted(known))}"
        )
    return chosen


def _no_alias(
    registry: PolicyRegistry,
    reference: str,
    workers: int | None,
    protocols: str | None,
    alias: str,
) -> str | None:
    """What to say where there is a policy, but not under this alias."""
    found = _lookup(registry, reference, workers, protocols)
    if not found:
        return None
    known = sorted({name for p in found for name in registry.aliases(p.fingerprint)})
    return (
        f"no policy for {reference!r} has the alias {alias!r}; there is: {', '.join(known)};"
        f" set it with: syncswitch-search policy alias {reference} {alias} VERSION"
    )


def _none_found(
    reference: str, workers: int | None, protocols: str | None, storage_url: str
) -> str:
    from syncswitch.storage.inspection import shown

    options = f" --workers {workers}" if workers is not None else ""
    options += f" --protocols {protocols}" if protocols is not None else ""
    return (
        f"no policy for {reference!r} in {shown(storage_url)};"
        f" find one with: syncswitch-search run {reference}{options}"
    )


def _near_misses(registry: PolicyRegistry, reference: str) -> str:
    """What there is for this workload on other clusters, so that a wrong option shows."""
    others = _lookup(registry, reference, None, None)
    if not others:
        return ""
    return f" (there is one for {'; '.join(other.cluster for other in others)})"


def _named(found: list[TimingPolicy]) -> str:
    return "; ".join(f"{other.cluster} [{other.fingerprint[:12]}]" for other in found)


def _aliases_of(registry: PolicyRegistry, found: TimingPolicy) -> list[str]:
    aliases = registry.aliases(found.fingerprint)
    return [name for name, version in aliases.items() if version == found.version]


def _policy_cells(found: TimingPolicy, aliases: list[str]) -> list[str]:
    accuracy = found.mean_accuracy
    return [
        found.workload,
        found.fingerprint[:12],
        str(found.version),
        ", ".join(aliases) or "-",
        str(found.workers),
        f"{found.first_protocol},{found.second_protocol}",
        f"{found.switch_percent:g} %",
        "-" if accuracy is None else f"{accuracy:.4f}",
        found.created_at[:10],
    ]
