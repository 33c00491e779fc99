"""`syncswitch-search policy`: looks up, lists, exports and rolls back timing policies.

Needs neither TensorFlow nor Optuna, nor the user's workload file.
"""

from __future__ import annotations

import tempfile
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
            print_error(f"{message}{_near_misses(registry, reference)}")
            return EXIT_FAILED
        names = _aliases_of(registry, found[0])
    _name_others(found)
    if as_json:
        print_json(policy_to_dict(found[0]))
    else:
        print_policy(found[0], names, with_evidence=False)
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
        found = _chosen(registry, reference, workers, protocols, version)
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
    from syncswitch.storage.policy_file import write_policy

    with _registry(storage_url) as registry:
        found = _chosen(registry, reference, workers, protocols, version)
    if output is None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.json"
            write_policy(path, found)
            click.echo(path.read_text(encoding="utf-8"), nl=False)
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
        found = _chosen(registry, reference, workers, protocols, None)
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


def _chosen(
    registry: PolicyRegistry,
    reference: str,
    workers: int | None,
    protocols: str | None,
    version: int | None,
) -> TimingPolicy:
    found = _lookup(registry, reference, workers, protocols)
    if not found:
        raise PolicyError(
            f"no policy for {reference!r}{_near_misses(registry, reference)};"
            " see: syncswitch-search policy list"
        )
    _name_others(found)
    if version is None or version == found[0].version:
        return found[0]
    chosen = registry.get(found[0].fingerprint, version)
    if chosen is None:
        known = [p.version for p in registry.policies(workload=found[0].fingerprint)]
        raise PolicyError(
            f"{found[0].workload} has no version {version};"
            f" it has {', '.join(str(number) for number in sorted(known))}"
        )
    return chosen


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
    return f" (there is one for {'; '.join(_cluster_of(other) for other in others)})"


def _name_others(found: list[TimingPolicy]) -> None:
    if len(found) > 1:
        others = "; ".join(
            f"{_cluster_of(other)} [{other.fingerprint[:12]}]" for other in found[1:]
        )
        click.echo(
            f"the newest of {len(found)}, for {_cluster_of(found[0])}; others: {others};"
            " choose with --workers, --protocols or the fingerprint",
            err=True,
        )


def _cluster_of(found: TimingPolicy) -> str:
    return f"{found.workers} workers, {found.first_protocol},{found.second_protocol}"


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
