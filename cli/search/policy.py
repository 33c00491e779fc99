"""`syncswitch-search policy`: looks up, compares, exchanges and rolls back policies.

It needs neither TensorFlow nor Optuna, nor the user's workload file.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncswitch.cli.completion import complete_alias, complete_policy, complete_version
from syncswitch.cli.console import (
    EXIT_FAILED,
    Row,
    echo,
    failure_document,
    print_error,
    print_fields,
    print_json,
    print_note,
    print_rows,
    print_text,
)
from syncswitch.cli.group import SubcommandGroup
from syncswitch.cli.options import common_options, debug_option
from syncswitch.cli.search.rows import optional_workload, output_option, selector_of
from syncswitch.cli.search.selection import VERSION, narrowing_options, selection_options
from syncswitch.searcher.known_policies import as_known_now, look_up
from syncswitch.searcher.search.policy_words import (
    expected_time_text,
    guard_text,
    kept_text,
    policy_text,
    probability_text,
    times_text,
    uses_as_json,
    uses_sentence,
)
from syncswitch.searcher.selection import (
    ClusterKind,
    Selection,
    chosen_policy,
    filed_policy,
    is_policy_file,
    none_found,
    split_choice,
)
from syncswitch.searcher.speed_up import speed_up_of
from syncswitch.searcher.words import (
    NONE,
    accuracy_text,
    counted,
    metric_title,
    momentum_text,
    named_text,
    sentence,
    workers_text,
)
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import holds_nothing
from syncswitch.storage.errors import PolicyError, UserError
from syncswitch.storage.policies.file import policy_text as policy_file_text
from syncswitch.storage.policies.file import read_policy_file, write_policy
from syncswitch.storage.policies.registry import (
    CURRENT,
    EvidenceTrial,
    PolicyEntry,
    PolicyRegistry,
    import_policies,
)
from syncswitch.storage.queries.policies import FieldDifference, policy_differences
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.job import protocol_text
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.uses.spool import spool_beside, take_in
from syncswitch.storage.uses.store import uses_of, uses_of_all
from syncswitch.storage.uses.summary import UseSummary

if TYPE_CHECKING:
    from syncswitch.searcher.search.explanation import Explanation


@click.group(cls=SubcommandGroup)
def policy() -> None:
    """Look up, compare, exchange and roll back timing policies.

    WORKLOAD is a name, file.py:attribute, package.module:attribute, or at least 8 digits of a
    fingerprint. Add @VERSION or @ALIAS for another policy than the current one.
    """


def _print_policy(entry: PolicyEntry, uses: UseSummary) -> None:
    policy = entry.policy
    workers = workers_text(policy.job.workers, entry.identity.simulated_cluster)
    print_text(policy_text(policy, entry.identity))
    if uses.uses:
        print_text(uses_sentence(uses))
    echo()
    names = ", ".join(entry.aliases) or "-"
    evidence, gain = counted(len(policy.evidence), "run"), speed_up_of(policy)
    sure = policy.promise.confidence
    rows = [
        ("workload", policy.job.workload),
        ("fingerprint", policy.job.fingerprint),
        ("version", f"{policy.version} (aliases: {names})"),
        ("processes" if entry.identity.is_command else "workers", workers),
        ("protocols", policy.protocols.pair),
        ("after the switch", momentum_text(entry.identity.momentum_after_switch)),
        ("switch at", f"{policy.switch_percent:g} %"),
        ("found by", f"{policy.strategy}, {evidence}, study {policy.study}"),
        ("speed-up", None if gain is None else times_text(gain)),
        ("found for", guard_text(policy)),
        ("kept", kept_text(policy)),
        ("expected", expected_time_text(policy)),
        ("confidence", None if sure is None else probability_text(sure)),
        ("created", policy.created_at),
        ("imported", entry.imported_at),
        ("software", ", ".join(f"{name} {v}" for name, v in sorted(policy.software.items()))),
    ]
    print_fields((name, value) for name, value in rows if value is not None)


def _print_evidence(policy: TimingPolicy, trials: Sequence[EvidenceTrial]) -> None:
    echo()
    if not policy.evidence:
        echo("It rests on the runs with its versions: see syncswitch-search uses list")
        return
    print_rows(
        [
            [
                ("trial", str(run.trial_number)),
                ("switch at", f"{run.switch_percent:g} %"),
                ("replicate", str(run.replicate)),
                (policy.job.metric.name, policy.job.metric.text(run.converged_accuracy)),
                ("diverged", "yes" if run.diverged else "no"),
                ("seconds", f"{run.training_seconds:.1f}"),
                ("trial_id", NONE if trial.trial_id is None else f"{trial.trial_id}{but}"),
            ]
            for run, trial in zip(policy.evidence, trials, strict=True)
            for but in ["" if trial.agrees else " differs"]
        ]
    )
    there = sum(trial.trial_id is not None for trial in trials)
    changed = there - sum(trial.agrees for trial in trials)
    but = f", {changed} of them with other results" if changed else ""
    runs, are = counted(len(trials), "run"), "is" if there == 1 else "are"
    echo(f"{there} of {runs} {are} in this database{but}.")


def _print_why(why: Explanation, policy: TimingPolicy) -> None:
    # Only `show --why` needs the strategies.
    from syncswitch.searcher.search.explanation import belief_cells, belief_sentence, why_sentences

    metric = policy.job.metric
    echo()
    if why.beliefs:
        print_text(belief_sentence(why))
        print_rows([belief_cells(why, number, metric) for number in range(len(why.runs))])
        echo()
    pair = policy.protocols
    first, second = protocol_text(pair.first_protocol), pair.second_protocol
    for reason in why_sentences(why, first, metric, second):
        print_text(f"- {reason}")


def _before_and_after(difference: FieldDifference) -> tuple[str, str]:
    """Two different values, with as many digits as it takes to show the difference."""
    values = (difference.before, difference.after)
    if difference.field == "fingerprint":
        return values[0][:12], values[1][:12]
    if difference.field == "evidence":
        both = sum(run in values[1] for run in values[0])
        before, after = (f"{counted(len(runs), 'run')}, {both} of them in both" for runs in values)
        return before, after
    unit = " %" if difference.field.endswith("_percent") else ""

    def shown(value: Any, digits: int) -> str:
        if value is None:
            return NONE
        return (f"{value:.{digits}g}" if isinstance(value, float) else str(value)) + unit

    short = (shown(values[0], 5), shown(values[1], 5))
    return short if short[0] != short[1] else (shown(values[0], 17), shown(values[1], 17))


@policy.command()
@selection_options()
@output_option
@common_options
def export(selection: Selection, output: Path | None, storage_url: str, as_json: bool) -> None:
    """Write a policy to a file.

    syncswitch-run takes it with --policy, another database with policy import.
    """
    with open_database(storage_url, create=False) as database:
        found = chosen_policy(database, selection, print_note).policy
        workload = PolicyRegistry(database).workload(found.job.fingerprint)
    assert workload is not None  # every policy refers to one
    if output is None:
        click.echo(policy_file_text(found, workload), nl=False)
        return
    write_policy(output, found, workload)
    if as_json:
        print_json({"path": str(output), "version": found.version})
    else:
        echo(f"version {found.version} for {found.job.workload} written to {output}")


@policy.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@common_options
def import_policy_files(files: tuple[str, ...], storage_url: str, as_json: bool) -> None:
    """Add policies from exported files.

    Each becomes the next version of its workload, and the current one if there is none yet. All are
    added, or none if one is refused. A policy that is there already stays as it is, so the command
    may be repeated. Later runs that wait beside a file are taken in as well.
    """
    contents = [read_policy_file(file) for file in files]
    with open_database(storage_url, create=True) as database:
        imported = import_policies(database, contents)
        for file in files:
            spool = spool_beside(Path(file))
            try:
                taken = take_in(database, spool)
            except UserError as error:  # the policies are in
                print_note(error)
                continue
            if taken.recorded:
                print_note(f"{counted(taken.recorded, 'later run')} imported from {spool}")
            for word in (*taken.kept, *taken.set_aside):
                print_note(word)
    if as_json:
        print_json(
            [
                {
                    "path": file,
                    "workload": entry.policy.job.workload,
                    "fingerprint": entry.policy.job.fingerprint,
                    "version": entry.policy.version,
                    "is_new": entry.is_new,
                    "current_version": entry.current_version,
                    "simulated_cluster": entry.job.simulated_cluster,
                }
                for file, entry in zip(files, imported, strict=True)
            ]
        )
        return
    for file, entry in zip(files, imported, strict=True):
        policy, added = entry.policy, "added" if entry.is_new else "already there"
        current = f"current is version {entry.current_version}, which policy alias can change"
        if entry.current_version == policy.version:
            current = "it is current"
        print_text(
            f"{file}: {added} as version {policy.version} of {policy.job.workload}"
            f" ({entry.identity.cluster}); {current}"
        )


@policy.command()
@debug_option
def schema() -> None:
    """Print the JSON Schema of policy files."""
    from syncswitch.storage.policies.schema import policy_schema

    print_json(policy_schema())


@policy.command(name="alias")
@selection_options(has_choice=False)
@click.argument("alias", shell_complete=complete_alias)
@click.argument("version", type=VERSION, shell_complete=complete_version)
@common_options
def move_alias(
    selection: Selection, alias: str, version: int, storage_url: str, as_json: bool
) -> None:
    """Make ALIAS point to VERSION of the policy of WORKLOAD."""
    _move(selection, alias, version, storage_url, as_json)


@policy.command()
@selection_options(has_choice=False)
@common_options
def rollback(selection: Selection, storage_url: str, as_json: bool) -> None:
    """Make the next lower version the current one."""
    _move(selection, CURRENT, None, storage_url, as_json)


@policy.command()
@click.argument("first", metavar="A", shell_complete=complete_policy)
@click.argument("second", metavar="B", shell_complete=complete_policy)
@narrowing_options
@common_options
def diff(
    first: str,
    second: str,
    workers: int | None,
    protocols: str | None,
    cluster: ClusterKind | None,
    storage_url: str,
    as_json: bool,
) -> None:
    """Show the differences between two policies.

    A and B are policy files (.json), or WORKLOAD, WORKLOAD@VERSION or WORKLOAD@ALIAS in the
    database.
    """

    def side(name: str) -> PolicyEntry:
        if is_policy_file(name):
            return filed_policy(name)
        workload, choice = split_choice(name)
        selection = Selection(workload, workers, protocols, cluster, choice or CURRENT)
        with open_database(storage_url, create=False) as database:
            return chosen_policy(database, selection, print_note)

    before, after = side(first), side(second)
    a, b = before.policy, after.policy
    changes = policy_differences(a, b, before.identity, after.identity)
    if as_json:
        fields = ("workload", "fingerprint", "version", "created_at")
        sides = [
            {"name": name, **{field: flat(policy)[field] for field in fields}}
            for name, policy in ((first, a), (second, b))
        ]
        differences = list(map(asdict, changes))
        document = {"before": sides[0], "after": sides[1], "is_equal": not changes}
        print_json({**document, "differences": differences})
    elif changes:
        rows = []
        for change in changes:
            values = zip((first, second), _before_and_after(change), strict=True)
            rows.append([("field", change.field.replace("_", " ")), *values])
        print_rows(rows)
    else:
        echo(f"{first} and {second} are equal ({a.job.workload}, {before.identity.cluster})")


def _move(
    selection: Selection, alias: str, version: int | None, storage_url: str, as_json: bool
) -> None:
    with open_database(storage_url, create=False) as database:
        policy = chosen_policy(database, selection, print_note).policy
        registry = PolicyRegistry(database)
        before = registry.aliases(policy.job.fingerprint).get(alias)
        if version is None:
            _, version = registry.roll_back(policy.job.fingerprint, alias)
        else:
            registry.set_alias(policy.job.fingerprint, alias, version)
    if as_json:
        print_json(
            {
                "fingerprint": policy.job.fingerprint,
                "alias": alias,
                "version": version,
                "previous_version": before,
            }
        )
    else:
        was = "" if before is None else f" (was version {before})"
        echo(f"{policy.job.workload}: {alias} is version {version}{was}")


@policy.command()
@selection_options(has_choice=False)
@common_options
def revise(selection: Selection, storage_url: str, as_json: bool) -> None:
    """Publish another switch point for WORKLOAD, if its later runs call for it.

    They do if another switch point that was tried is expected to take less time, including the
    cost of failed switches. The new version becomes the current one; other aliases stay.
    """
    from syncswitch.searcher.learning.publishing import revise as revised

    with open_database(storage_url, create=False) as database:
        policy = chosen_policy(database, selection, print_note).policy
        revision, new = revised(database, policy) or (None, None)
        summary = uses_of(database, policy)
    if as_json:
        found = None if revision is None else asdict(revision) | {"answer": flat(revision.answer)}
        published = None if new is None else flat(new)
        document = {"revision": found, "policy": published, "uses": uses_as_json(summary)}
        print_json(policy.job.metric.document(document))
        return
    if revision is None or new is None:
        stays = f"{policy.job.workload}: version {policy.version} stays."
        print_text(f"{stays} {uses_sentence(summary)}")
        return
    print_text(sentence(revision.why))
    print_text(f"{new.job.workload}: current is version {new.version} (was {policy.version})")


@policy.command()
@selection_options()
@common_options
def lookup(selection: Selection, storage_url: str, as_json: bool) -> int | None:
    """Print the policy of WORKLOAD. Exit status 1 if there is none."""
    try:
        if holds_nothing(storage_url):
            raise none_found([], selection, storage_url)
        with open_database(storage_url, create=False) as database:
            known, uses = look_up(database, selection, print_note)
    except PolicyError as error:
        if as_json:
            reason = failure_document(error, error.code, error.parameters)
            print_json({"policy": None, "error": reason})
        print_error(error)
        return EXIT_FAILED
    if as_json:
        digest, rule = known.identity.simulated_cluster, known.identity.momentum_after_switch
        more = {"simulated_cluster": digest, "momentum_after_switch": rule}
        job = {name: value for name, value in more.items() if value is not None}
        print_json(known.policy.job.metric.document({**flat(known.policy), **job}))
    else:
        _print_policy(known, uses)
    return None


@policy.command(name="list")
@optional_workload
@common_options
def list_policies(reference: str | None, storage_url: str, as_json: bool) -> None:
    """List all versions, newest first."""
    with open_database(storage_url, create=False) as database:
        found = PolicyRegistry(database).entries(workload=selector_of(reference))
        summaries = uses_of_all(database, [entry.policy for entry in found])
        entries = [as_known_now(database, *one) for one in zip(found, summaries, strict=True)]
    if as_json:
        print_json([_entry_as_json(entry) for entry in entries])
    elif not entries:
        of_it = "" if reference is None else f" of {reference!r}"
        command = shlex.join(["syncswitch-search", "run", reference or "WORKLOAD"])
        echo(f"no policies{of_it} here; find one with: {command}")
    else:
        title = metric_title(entry.policy.job.metric for entry in entries)
        rules = {entry.identity.momentum_after_switch for entry in entries}
        print_rows([_cells(entry, title, has_rules=len(rules) > 1) for entry in entries])


@policy.command()
@selection_options()
@click.option(
    "--why",
    "is_why",
    is_flag=True,
    help="Also show what the search believed after each run, and what would change its answer.",
)
@common_options
def show(selection: Selection, is_why: bool, storage_url: str, as_json: bool) -> None:
    """Show one policy with the runs behind it.

    trial_id is the run's number in this database, if it is there.
    """
    with open_database(storage_url, create=False) as database:
        entry = chosen_policy(database, selection, print_note, may_guess=True)
        chosen = entry.policy
        trials = PolicyRegistry(database).evidence_trials(chosen.job.fingerprint, chosen.version)
        uses, why = uses_of(database, chosen), None
        known = as_known_now(database, entry, uses)
        if is_why:
            # NumPy takes a while to import.
            from syncswitch.searcher.learning.reading import policy_explained

            why = policy_explained(database, entry)
    if as_json:
        from syncswitch.searcher.search.explanation import why_as_json

        document = _entry_as_json(known)
        metric, runs = chosen.job.metric, zip(chosen.evidence, trials, strict=True)
        document["evidence"] = [metric.document({**asdict(a), **asdict(b)}) for a, b in runs]
        document["uses"] = uses_as_json(uses)
        if why is not None:
            document["why"] = metric.document(why_as_json(why))
        print_json(document)
        return
    _print_policy(known, uses)
    _print_evidence(chosen, trials)
    if why is not None:
        _print_why(why, chosen)


def _entry_as_json(entry: PolicyEntry) -> dict[str, object]:
    return {
        **entry.policy.job.metric.document(flat(entry.policy)),
        "aliases": list(entry.aliases),
        "imported_at": entry.imported_at,
        "simulated_cluster": entry.identity.simulated_cluster,
        "momentum_after_switch": entry.identity.momentum_after_switch,
    }


def _cells(entry: PolicyEntry, title: str, *, has_rules: bool) -> Row:
    policy, metric, kept = entry.policy, entry.policy.job.metric, NONE
    found_on = entry.identity.pair
    if not entry.identity.is_command or policy.job.workers > 1:
        workers = workers_text(policy.job.workers, entry.identity.simulated_cluster)
        found_on = f"{workers} {found_on}"
    # Of a policy that is used as intended.
    share = policy.promise.delivered_share if policy.is_for_guard else policy.promise.kept_share
    if share is not None:
        kept = f"{100 * share:.0f} %{' guarded' if policy.is_for_guard else ''}"
    return [
        ("workload", f"{policy.job.workload} [{policy.job.fingerprint[:8]}]"),
        ("version", " ".join([str(policy.version), *entry.aliases])),
        ("cluster", found_on),
        *([("momentum", entry.identity.momentum_after_switch or NONE)] if has_rules else []),
        ("switch at", f"{policy.switch_percent:g} %"),
        (title, named_text(accuracy_text(policy.measured.mean_accuracy, metric), metric, title)),
        ("kept", kept),
    ]
