"""The notebooks run from top to bottom as a reader finds them, and show what they say they show."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from reproduction.figures import FIGURES
from tests.program import environment
from tests.warm_program import for_shells

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
FILES = sorted(NOTEBOOKS.glob("*.ipynb"))
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
TIMEOUT_SECONDS = 240

Outputs = dict[str, list[Any]]
"""What each code cell showed, by its id."""


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


@pytest.fixture
def execute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Outputs]]:
    """Runs a notebook in another folder than its own, with this interpreter and our commands."""
    programs, elsewhere, temporary = (folder / name for name in ("bin", "cwd", "tmp"))
    for new in (elsewhere, temporary):
        new.mkdir()
    places = [programs, Path(sys.executable).parent, os.environ["PATH"]]
    surroundings = {
        **environment(),
        "PATH": os.pathsep.join(map(str, places)),
        "TMPDIR": str(temporary),
        "IPYTHONDIR": str(temporary),
        "PYTHONPATH": str(NOTEBOOKS.parent),
    }
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(temporary))

    def run(name: str, **variables: str) -> Outputs:
        notebook = read(NOTEBOOKS / f"{name}.ipynb")
        _execute(notebook, elsewhere, {**surroundings, **variables})
        assert list(elsewhere.iterdir()) == []
        assert sorted(NOTEBOOKS.glob("*.ipynb")) == FILES
        cells = {cell["id"]: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
        assert_quiet(cells)
        return cells

    with for_shells(programs):
        yield run


def _execute(notebook: Any, folder: Path, variables: Mapping[str, str]) -> None:
    # Without folders of others there is only the kernel of this interpreter.
    own = KernelSpecManager(kernel_dirs=[])
    spec = own.get_kernel_spec("python3")
    assert spec.argv[0] == sys.executable
    spec.argv[:1] = [variables["PATH"].partition(os.pathsep)[0] + "/python"]

    class OwnKernel(AsyncKernelManager):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(kernel_spec_manager=own, **options)
            self._kernel_spec = spec

    client = nbclient.NotebookClient(
        notebook,
        kernel_name="python3",
        kernel_manager_class=OwnKernel,
        timeout=TIMEOUT_SECONDS,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=variables)  # raises what a cell raises


def text_of(outputs: list[Any]) -> str:
    """What is printed and shown as text, without colours."""
    parts = [
        one.text if one.output_type == "stream" else one.data.get("text/plain", "")
        for one in outputs
    ]
    return re.sub(r"\x1b\[[0-9;]*m", "", "".join(parts))


def table_of(outputs: list[Any]) -> list[dict[str, str]]:
    """The rows of the table that a cell shows, by column."""
    (html,) = [one.data["text/html"] for one in outputs if one.output_type == "execute_result"]
    rows = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        for row in re.findall("<tr.*?</tr>", html, re.DOTALL)
    ]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def figures_of(outputs: list[Any]) -> list[str]:
    """Ours are SVG, those that a notebook draws itself are PNG."""
    kinds = ("image/svg+xml", "image/png")
    shown = [one.data for one in outputs if one.output_type != "stream"]
    return [data[kind] for data in shown for kind in kinds if kind in data]


def assert_quiet(cells: Outputs) -> None:
    """Nobody is frightened by warnings of libraries."""
    errors = [
        one.text
        for outputs in cells.values()
        for one in outputs
        if one.output_type == "stream" and one.name == "stderr"
    ]
    assert not re.search("Traceback|[Ww]arning|WARNING|[Ee]rror|^I0", "".join(errors)), errors


def test_the_readme_has_a_line_on_each() -> None:
    page = (NOTEBOOKS / "README.md").read_text()
    assert [path.name for path in FILES] == re.findall(r"\(([0-9]_\w+\.ipynb)\)", page)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_file_holds_its_words_and_nothing_of_a_machine(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert notebook.metadata == METADATA
    for cell in notebook.cells:
        assert cell.metadata == {}
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
    absolute = r"(?<![\w.:/\"')])/(home|root|tmp|usr|var|work|dev/shm)\b"
    assert not re.search(absolute, path.read_text())
    # It begins with what it shows and how long that takes.
    first = notebook.cells[0].source
    assert first.startswith("# ")
    assert re.search(r"(half a minute|\d+ seconds)\s+on\s+two\s+cores|two cores this takes", first)


SAID = {
    "1_first_search": {
        "run-search": r"switch at \S+ %, \d+ runs",
        "lookup": r"BSP for the first \S+ % of its\s800",
        "ask-again": "version 1 again",
        "real-search": "on 4 workers",
        "train-model": r"short-digits on 4 workers with policy version 1",
    },
    "2_trial_database": {"export-file": "trial_id,workload,fingerprint"},
    "3_paper_figures": {"import-runs": "runs: 45 imported"},
    "5_your_own_workload": {
        "check-workload": "2000 examples, 500 to test with",
        "run-search": r"accuracy 0\.9[5-9]",
        "run-fit": r"accuracy 0\.9[5-9]",
        "try-script": '"step": 200',
        # Which switch pays is a matter of real time, of which a loaded machine has less.
        "search-command": "Train `full-or-eight` with FULL for (the first|all)",
    },
    "6_figures_of_your_job": {"other-runs": "restart"},
}
"""What cells print: a pattern for each."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_each_shows_what_it_says(
    execute: Callable[..., Outputs], published: Path, name: str
) -> None:
    cells = execute(name, SYNCSWITCH_PAPER=str(published))
    for cell, pattern in SAID.get(name, {}).items():
        assert re.search(pattern, text_of(cells[cell])), cell
    for cell, outputs in cells.items():
        if cell.endswith("-figure"):
            (figure,) = figures_of(outputs)
            assert figure
        if cell.endswith("-table"):
            assert "<td" in outputs[-1].data["text/html"], cell
    if name in CHECKS:
        CHECKS[name](cells)


def check_database(cells: Outputs) -> None:
    """It answers alike in pandas and in SQL."""
    names = ("workers", "candidate_percent", "runs")
    in_pandas, in_sql = (
        [(*map(row.get, names), row[accuracy]) for row in table_of(cells[cell])]
        for cell, accuracy in (("settings-table", "mean_accuracy"), ("sql-table", "accuracy"))
    )
    assert in_pandas == in_sql
    completed = sum(int(row["completed_runs"]) for row in table_of(cells["cost-table"]))
    assert completed == len(table_of(cells["trial-table"]))


def check_published(cells: Outputs) -> None:
    """The published logs give the published figures."""
    rows = {
        (row["workers"], row["candidate_percent"]): row for row in table_of(cells["settings-table"])
    }
    bsp = rows["8", "100.000"]
    assert (bsp["mean_accuracy"], bsp["mean_training_seconds"]) == ("0.9188", "10603.7400")
    summary = table_of(cells["summary-table"])
    assert [row["run"] for row in summary] == ["BSP", "BSP 6.25 %, ASP", "ASP"]
    assert summary[1]["times_as_fast"] == "5.0879"
    for row in (*table_of(cells["beside-tables"]), *table_of(cells["beside-16"])):
        low, high = row["interval"].split(" to ")
        assert float(low) <= float(row["success_percent_published"]) <= float(high), row
        published = float(row["search_cost_published"])
        assert float(row["search_cost"]) == pytest.approx(published, abs=0.25)


def check_stragglers(cells: Outputs) -> None:
    """Both save time, greedy the most, and neither pays with accuracy."""
    measured = {
        row["online"]: (float(row["mean_accuracy"]), float(row["mean_training_seconds"]))
        for row in table_of(cells["compare-table"])
    }
    assert measured["elastic"][1] < 0.9 * measured["none"][1]
    assert measured["elastic"][0] > measured["none"][0] - 0.01
    assert measured["greedy"][1] < measured["elastic"][1]
    assert measured["greedy"][0] > measured["none"][0] - 0.01
    kinds = [row["kind"] for row in table_of(cells["event-table"])]
    assert kinds[:4] == ["detected", "detected", "removed", "removed"]
    assert kinds.count("restored") == 2


def check_figures(cells: Outputs) -> None:
    """Every figure of the papers is drawn of one's own job."""
    assert {f"{name}-figure" for name in FIGURES.keys() - {"summary"}} <= cells.keys()
    summary = {(row["workers"], row["run"]): row for row in table_of(cells["summary-table"])}
    asp, bsp = (float(summary["8", run]["accuracy"]) for run in ("ASP", "BSP"))
    assert asp < bsp - 0.05


CHECKS: dict[str, Callable[[Outputs], None]] = {
    "2_trial_database": check_database,
    "3_paper_figures": check_published,
    "4_stragglers": check_stragglers,
    "6_figures_of_your_job": check_figures,
}


def test_without_the_published_logs_their_notebook_says_so_and_ends(
    execute: Callable[..., Outputs], tmp_path: Path
) -> None:
    cells = execute("3_paper_figures", SYNCSWITCH_PAPER=str(tmp_path))
    assert f"there are no logs in {tmp_path}" in text_of(cells.pop("folder"))
    assert set(map(text_of, cells.values())) == {""}
