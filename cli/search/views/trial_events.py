"""What happened to runs while they trained, as tables."""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import Any

from syncswitch.cli.console import echo, print_table
from syncswitch.searcher.words import conditions_text
from syncswitch.storage.database.engine import Database
from syncswitch.storage.queries.row_stream import row_blocks
from syncswitch.storage.queries.run_rows import events
from syncswitch.storage.queries.trial_filter import TrialChoice


def print_events(database: Database, choice: TrialChoice, most_rows: int, nothing: str) -> None:
    """One table per run; of all tables together the newest rows are shown."""
    newest: deque[Any] = deque(maxlen=most_rows)
    number = 0
    for block in row_blocks(database, events(choice)):
        newest.extend(block)
        number += len(block)
    if not newest:
        echo(nothing)
    for position, (_, rows) in enumerate(groupby(newest, key=lambda row: row.trial_id)):
        if position:
            echo()
        _print_run(list(rows))
    if number > most_rows:
        echo(f"\nthe newest {most_rows:,} of {number:,}; all of them: --format csv")


def _print_run(rows: list[Any]) -> None:
    first = rows[0]
    conditions = conditions_text(first.online, first.switch_mechanism, first.injections)
    echo(
        f"{first.study} {first.trial_number}, {first.workload}, {first.switch_percent:g} %"
        + (f" [{conditions}]" if conditions else "")
    )
    optional = {
        "worker": any(row.worker is not None for row in rows),
        "took": any(row.seconds is not None for row in rows),
    }
    columns = [
        name
        for name in ("event", "worker", "worker-step", "seconds", "took", "reason")
        if optional.get(name, True)
    ]
    cells = map(_cells, rows)
    print_table(columns, [[row[name] for name in columns] for row in cells], prose="reason")


def _cells(row: Any) -> dict[str, str]:
    return {
        "event": row.kind,
        "worker": "-" if row.worker is None else str(row.worker),
        "worker-step": str(row.worker_step),
        "seconds": f"{row.elapsed_seconds:.1f}",
        "took": "-" if row.seconds is None else f"{row.seconds:.2f} s",
        "reason": row.reason,
    }
