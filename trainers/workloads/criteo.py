"""Reads clicks as Criteo publishes them; never downloads anything.

A line is a label, 13 numbers and 26 categories as hexadecimal hashes, with tabs between them, as in
`train.txt` of the Display Advertising Challenge (https://ailab.criteo.com/ressources/). Any file of
that form will do. `SYNCSWITCH_DATA` names the folder with it, `SYNCSWITCH_CLICKS_EXAMPLES` how many
of its lines are read, and `SYNCSWITCH_CLICKS_ROWS` the rows of each of the 26 tables.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.sources.source import Array
from syncswitch.trainers.workloads.cifar import FOLDER_VARIABLE
from syncswitch.trainers.workloads.clicks import click_workload, rows_of_tables, whole_number

EXAMPLES_VARIABLE = "SYNCSWITCH_CLICKS_EXAMPLES"
"""Environment variable with the lines that are read, from the first one on."""

FILE = "train.txt"
NUMBERS, CATEGORIES = 13, 26
"""Of an example."""

_EXAMPLES = 1_000_000
_MOST_EXAMPLES = 100_000_000
# The lines are in the order of time: what is tested on comes last.
_TEST_SHARE = 0.1


def read_criteo(examples: int, rows: int) -> Data:
    """Reads the first lines of the file.

    A category becomes its hash modulo the rows, and a number x log(1 + x). What is missing is 0.

    Args:
        examples: The most that are read.
        rows: Of each table.

    Raises:
        WorkloadError: There is no such file, or a line is of another form.
    """
    path = _place()
    columns = 1 + NUMBERS + CATEGORIES
    table = np.zeros((examples, columns), np.float32)
    read = 0
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for read, line in enumerate(islice(lines, examples), 1):
                table[read - 1] = _values(line, rows)
    except (OSError, ValueError) as error:
        raise WorkloadError(
            f"{path}, line {read}: {one_line(error)}; give a file of Criteo's form, a label,"
            f" {NUMBERS} numbers and {CATEGORIES} hexadecimal categories with tabs between them"
        ) from error
    if read < 2:
        raise WorkloadError(f"{path} has {read} lines; give at least 2, of which one is tested on")
    return _split(table[:read])


def _values(line: str, rows: int) -> list[float]:
    label, *fields = line.rstrip("\r\n").split("\t")
    if len(fields) != NUMBERS + CATEGORIES or label not in ("0", "1"):
        raise ValueError(f"it has {1 + len(fields)} fields, and the label {label[:20]!r}")
    numbers = [float(field or 0) for field in fields[:NUMBERS]]
    categories = [int(field or "0", 16) % rows for field in fields[NUMBERS:]]
    return [float(label), *numbers, *categories]


def _split(table: Array) -> Data:
    labels, inputs = table[:, :1], table[:, 1:]
    numbers = inputs[:, :NUMBERS]
    np.log1p(np.maximum(numbers, 0.0), out=numbers)
    cut = len(table) - max(1, round(_TEST_SHARE * len(table)))
    return Data(inputs[:cut], labels[:cut], inputs[cut:], labels[cut:])


def _place() -> Path:
    folder = os.environ.get(FOLDER_VARIABLE)
    path = Path(folder or ".").expanduser() / FILE
    if not folder or not path.is_file():
        missing = f"{path} is no file" if folder else f"{FOLDER_VARIABLE} is not set"
        raise WorkloadError(
            f"Criteo's clicks: {missing}; name the folder with {FILE} of the Display Advertising"
            f" Challenge in {FOLDER_VARIABLE} (https://ailab.criteo.com/ressources/)"
        )
    return path


_LINES = whole_number(EXAMPLES_VARIABLE, _EXAMPLES, _MOST_EXAMPLES)

workload = click_workload(
    "clicks-criteo",
    tables=CATEGORIES,
    dense=NUMBERS,
    data=partial(read_criteo, _LINES, rows_of_tables()),
    data_set=f"Criteo, {_LINES} lines, tables of {rows_of_tables()} rows",
    total_worker_steps=20_000,
    batch_size=128,
    learning_rate=0.1,
)
