"""Is the database whole, and does it agree with itself? Finds out by reading alone.

SQL does the work, and hands over a few examples of each fault: memory stays small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass

from sqlalchemy import Boolean, Connection, Float, Integer, func, inspect, select
from sqlalchemy.orm import Session

from syncswitch.storage.audit.rules import RESTORE, Rule, rules
from syncswitch.storage.database.engine import Database
from syncswitch.storage.database.inspection import REVISION, Content, revision_of, shown
from syncswitch.storage.errors import DatabaseError, PolicyError, SyncSwitchError, one_line
from syncswitch.storage.policies.file import policy_to_dict
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.tables.base import Base
from syncswitch.storage.tables.policies import PolicyRow
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS

_EXAMPLES = 5
_BLOCK_ROWS = 1000
_NUMBERS = (Integer, Float, Boolean)
_FATAL = frozenset({"revision", "schema", "integrity", "values"})


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that somebody should know about a database.

    Attributes:
        kind: What was looked at, for example `alias`.
        is_problem: Whether it needs a remedy; otherwise it is only information.
        what: What was found, with a few examples; one line.
        fix: What to do.
    """

    kind: str
    is_problem: bool
    what: str
    fix: str


def storage_findings(database: Database, content: Content) -> Iterator[Finding]:
    """Looks at everything that the storage knows of.

    Args:
        database: Which may have another revision than `open_database` accepts.
        content: What it holds.
    """
    if content is not Content.CURRENT:
        with database.engine.connect() as connection:
            yield _of_revision(revision_of(connection), shown(database.url))
        return
    with database.session(read_only=True) as session:
        missing = list(_missing(session.connection()))
    if missing:
        fix = "restore the database from a copy"
        yield Finding("schema", True, listed("missing", missing, len(missing)), fix)
        return
    damage = _damage(database)
    if damage:
        yield Finding(
            "integrity",
            True,
            listed("faults in the file", damage, len(damage)),
            "restore the file from a copy; what is readable, `sqlite3 FILE .recover` prints",
        )
    unreadable = list(_unreadable(database))
    if unreadable:
        what = listed("tables with values that cannot be read", unreadable, len(unreadable))
        yield Finding("values", True, what, RESTORE)
    # A damaged file may answer these questions, or may not.
    with suppress(SyncSwitchError) if damage or unreadable else nullcontext():
        for rule in rules():
            with database.session(read_only=True) as session:
                yield from _found(session, rule)
        yield from _impossible_policies(database)


def is_readable(findings: Sequence[Finding]) -> bool:
    """Whether, after these findings, all rows can be read."""
    return all(finding.kind not in _FATAL for finding in findings)


def listed(what: str, examples: Sequence[str], count: int) -> str:
    """For example `aliases that point at no version (7): a, b, c, d, e, ...`."""
    more = ", ..." if count > _EXAMPLES else ""
    return f"{what} ({count}): {', '.join(examples[:_EXAMPLES])}{more}"


def _of_revision(found: str | None, place: str) -> Finding:
    if found is None:
        what, fix = "no tables of syncswitch", "`syncswitch-search run WORKLOAD` makes them"
    else:
        what = f"the tables have revision {found}, this version of syncswitch needs {REVISION}"
        fix = f"copy the database, then run `syncswitch-search db upgrade --storage {place}`"
    return Finding("revision", True, what, fix)


def _missing(connection: Connection) -> Iterator[str]:
    """Parts of our tables that somebody removed; what somebody added does no harm."""
    found = inspect(connection)
    tables = set(found.get_table_names())
    for name, table in Base.metadata.tables.items():
        if name not in tables:
            yield name
            continue
        columns = {column["name"] for column in found.get_columns(name)}
        yield from (f"{name}.{c.name}" for c in table.columns if c.name not in columns)
        parts = [
            found.get_pk_constraint(name),
            *found.get_foreign_keys(name),
            *found.get_unique_constraints(name),
            *found.get_check_constraints(name),
            *found.get_indexes(name),
        ]
        expected = {str(part.name) for part in table.constraints}
        expected |= {str(part.name) for part in table.indexes}
        yield from sorted(expected - {str(part["name"]) for part in parts})
    if TRIAL_FACTS.name not in found.get_view_names():
        yield TRIAL_FACTS.name


def _damage(database: Database) -> list[str]:
    """What SQLite says of its file; a server looks after its files itself.

    `integrity_check`, and not `quick_check`: an index that disagrees with its table would hide
    rows, and takes hardly longer to look at.
    """
    if database.engine.dialect.name != "sqlite":
        return []
    try:
        with database.session(read_only=True) as session:
            query = f"PRAGMA integrity_check({_EXAMPLES + 1})"
            found = session.connection().exec_driver_sql(query).scalars().all()
    except SyncSwitchError as error:
        return [one_line(error)]
    return [] if found == ["ok"] else [" ".join(str(line).split()) for line in found]


def _unreadable(database: Database) -> Iterator[str]:
    """Tables of which a row is no text, no JSON or no time where it has to be, and why."""
    for table in Base.metadata.sorted_tables:
        columns = [column for column in table.columns if not isinstance(column.type, _NUMBERS)]
        if not columns:
            continue
        query = select(*columns).execution_options(yield_per=_BLOCK_ROWS)
        try:
            with database.session(read_only=True) as session:
                for _ in session.execute(query):
                    pass
        except SyncSwitchError as error:
            yield f"{table.name} ({one_line(error.__cause__ or error)})"


def _found(session: Session, rule: Rule) -> Iterator[Finding]:
    query = rule.query.add_columns(func.count().over().label("count")).limit(_EXAMPLES)
    rows = [dict(row) for row in session.execute(query).mappings()]
    if rows:
        examples = [rule.example.format(**row) for row in rows]
        yield Finding(rule.kind, True, listed(rule.what, examples, rows[0]["count"]), rule.fix)


def _impossible_policies(database: Database) -> Iterator[Finding]:
    with database.session(read_only=True) as session:
        keys = session.execute(select(PolicyRow.fingerprint, PolicyRow.version)).all()
    registry = PolicyRegistry(database)
    wrong = []
    for fingerprint, version in keys:
        try:
            policy = registry.get(fingerprint, version)
            if policy is not None:
                policy_to_dict(policy)
        except (DatabaseError, PolicyError, TypeError, ValueError) as error:
            wrong.append(f"version {version} of {fingerprint[:12]} ({one_line(error)})")
    if wrong:
        what = listed("policies with impossible values", wrong, len(wrong))
        yield Finding("policy", True, what, f"{RESTORE}, or point no alias at these")
