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
from tests.program import PROGRAMS, code, environment
from tests.warm_kernel import use_warm_kernels
from tests.warm_shell import WarmShell

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
FILES = sorted(NOTEBOOKS.glob("*.ipynb"))
PYTHON = """
import runpy, sys
run = runpy.run_module if sys.argv[1] == "-m" else runpy.run_path
del sys.argv[: 1 + (sys.argv[1] == "-m")]
run(sys.argv[0], run_name="__main__")
"""
"""The program `python`, as far as notebooks need it."""
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
    for new in (programs, elsewhere, temporary):
        new.mkdir()
    shell = WarmShell(programs, {"python": PYTHON, **{name: code(name) for name in PROGRAMS}})
    places = [programs, Path(sys.executable).parent, os.environ["PATH"]]
    surroundings = {
        **environment(),
        "PATH": os.pathsep.join(map(str, places)),
        "TMPDIR": str(temporary),
        "IPYTHONDIR": str(temporary),
        "PYTHONPATH": str(NOTEBOOKS.parent),
    }
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(temporary))

    def run(name: str, *, is_warm: bool = True, **variables: str) -> Outputs:
        notebook = read(NOTEBOOKS / f"{name}.ipynb")
        _execute(notebook, elsewhere, {**surroundings, **variables}, is_warm)
        assert list(elsewhere.iterdir()) == []
        assert sorted(NOTEBOOKS.glob("*.ipynb")) == FILES
        return {cell["id"]: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}

    yield run
    shell.close()


def _execute(notebook: Any, folder: Path, variables: Mapping[str, str], is_warm: bool) -> None:
    # Without folders of others there is only the kernel of this interpreter.
    own = KernelSpecManager(kernel_dirs=[])
    assert own.get_kernel_spec("python3").argv[0] == sys.executable

    class OwnKernel(AsyncKernelManager):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(kernel_spec_manager=own, **options)
            if is_warm:
                use_warm_kernels(self)

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


def test_there_are_six_and_the_readme_has_a_line_on_each() -> None:
    page = (NOTEBOOKS / "README.md").read_text()
    assert [path.name for path in FILES] == re.findall(r"\(([0-9]_\w+\.ipynb)\)", page)
    assert len(FILES) == 6


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_of_a_machine_is_in_the_file(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert notebook.metadata == METADATA
    for cell in notebook.cells:
        assert cell.metadata == {}
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
    absolute = r"(?<![\w.:/\"')])/(home|root|tmp|usr|var|work|dev/shm)\b"
    assert not re.search(absolute, path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_begins_with_what_it_shows_and_how_long_that_takes(path: Path) -> None:
    first, *others = read(path).cells
    assert first.source.startswith("# ")
    assert re.search(
        r"(half a minute|\d+ seconds)\s+on\s+two\s+cores|two cores this takes", first.source
    )
    # Before each cell of code stands what to look for, or the code that it goes on with.
    words = [cell for cell in [first, *others] if cell.cell_type == "markdown"]
    assert 2 * len(words) >= len(others) - 2


@pytest.mark.slow
def test_a_first_search_finds_a_policy_and_trains_with_it(execute: Callable[..., Outputs]) -> None:
    cells = execute("1_first_search")
    assert_quiet(cells)
    found = re.search(r"switch at (\S+) %, (\d+) runs", text_of(cells["run-search"]))
    assert found is not None
    assert 0 < float(found[1]) < 100
    assert f"BSP for the first {found[1]} % of its 800" in text_of(cells["lookup"]).replace(
        "\n", " "
    )
    assert len(table_of(cells["evidence-table"])) == int(found[2])
    for name in ("accuracy", "time-figure", "curves-figure"):
        (figure,) = figures_of(cells[name])
        assert figure
    assert text_of(cells["ask-again"]).startswith("version 1 again")
    assert "on 4 workers" in text_of(cells["real-search"])
    trained = text_of(cells["train-model"])
    assert "short-digits on 4 workers with policy version 1" in trained
    assert trained.rstrip().endswith("short-digits.keras")


@pytest.mark.slow
def test_the_database_answers_in_pandas_and_in_sql(execute: Callable[..., Outputs]) -> None:
    cells = execute("2_trial_database")
    assert_quiet(cells)
    runs = len(table_of(cells["trial-table"]))
    costs = table_of(cells["cost-table"])
    assert [row["workers"] for row in costs] == ["4", "8"]
    assert sum(int(row["completed_runs"]) for row in costs) == runs
    assert {row["kind"] for row in table_of(cells["event-table"])} == {"switched"}
    in_pandas = [
        tuple(row[name] for name in ("workers", "candidate_percent", "runs", "mean_accuracy"))
        for row in table_of(cells["settings-table"])
    ]
    in_sql = [
        tuple(row[name] for name in ("workers", "candidate_percent", "runs", "accuracy"))
        for row in table_of(cells["sql-table"])
    ]
    assert in_pandas == in_sql
    assert figures_of(cells["curve-figure"])
    assert "trial_id,workload,fingerprint" in text_of(cells["export-file"])


@pytest.mark.slow
def test_the_published_logs_give_the_published_figures(
    execute: Callable[..., Outputs], published: Path
) -> None:
    cells = execute("3_paper_figures", is_warm=False, SYNCSWITCH_PAPER=str(published))
    assert_quiet(cells)
    assert "runs: 45 imported" in text_of(cells["import-runs"])
    for name in ("accuracy-8", "accuracy-16", "time-figure", "curves-figure", "order-figure"):
        (figure,) = figures_of(cells[name])
        assert figure
    (bsp,) = (
        row
        for row in table_of(cells["settings-table"])
        if (row["workers"], row["candidate_percent"]) == ("8", "100.000")
    )
    assert (bsp["mean_accuracy"], bsp["mean_training_seconds"]) == ("0.9188", "10603.7400")
    summary = table_of(cells["summary-table"])
    assert [row["run"] for row in summary] == ["BSP", "BSP 6.25 %, ASP", "ASP"]
    assert summary[1]["times_as_fast"] == "5.0879"
    assert len(table_of(cells["adaptive-table"])) == 4
    for name in ("beside-tables", "beside-16"):
        rows = table_of(cells[name])
        assert len(rows) == 14
        for row in rows:
            low, high = row["interval"].split(" to ")
            assert float(low) <= float(row["success_percent_published"]) <= float(high), row
            published = float(row["search_cost_published"])
            assert float(row["search_cost"]) == pytest.approx(published, abs=0.25)


def test_without_the_published_logs_their_notebook_says_so_and_ends(
    execute: Callable[..., Outputs], tmp_path: Path
) -> None:
    cells = execute("3_paper_figures", SYNCSWITCH_PAPER=str(tmp_path))
    assert f"there are no logs in {tmp_path}" in text_of(cells.pop("folder"))
    assert set(map(text_of, cells.values())) == {""}


@pytest.mark.slow
def test_elastic_saves_time_and_greedy_pays_with_accuracy(execute: Callable[..., Outputs]) -> None:
    cells = execute("4_stragglers")
    assert_quiet(cells)
    measured = {
        row["online"]: (float(row["mean_accuracy"]), float(row["mean_training_seconds"]))
        for row in table_of(cells["compare-table"])
    }
    assert measured["elastic"][1] < 0.9 * measured["none"][1]
    assert measured["elastic"][0] > measured["none"][0] - 0.01
    assert measured["greedy"][0] < measured["none"][0] - 0.01
    kinds = [row["kind"] for row in table_of(cells["event-table"])]
    assert kinds[:4] == ["detected", "detected", "removed", "removed"]
    assert kinds.count("restored") == 2
    under_greedy = table_of(cells["greedy-table"])
    assert under_greedy[2]["reason"].startswith("to the second protocol")
    for name in ("event-figure", "phase-figure"):
        (figure,) = figures_of(cells[name])
        assert figure
    undisturbed, disturbed = re.findall(r"^100 % +(\S+)", text_of(cells["play-times"]), re.M)
    assert float(disturbed) > 1.3 * float(undisturbed)


@pytest.mark.slow
def test_a_model_and_a_command_of_ones_own_are_searched(execute: Callable[..., Outputs]) -> None:
    cells = execute("5_your_own_workload")
    assert_quiet(cells)
    assert "2000 examples, 500 to test with" in text_of(cells["check-workload"])
    assert len(table_of(cells["forecast-table"])) == 5
    found = re.search(r"switch at \S+ %: accuracy (\S+)", text_of(cells["run-search"]))
    assert found is not None
    assert float(found[1]) > 0.95
    fitted = re.search(r"accuracy (\S+)", text_of(cells["run-fit"]))
    assert fitted is not None
    assert float(fitted[1]) > 0.95
    assert '"step": 200' in text_of(cells["try-script"])
    # Which switch pays is a matter of real time, of which a loaded machine has less.
    assert re.search(
        r"^Train full-or-eight with FULL for (the first|all)",
        text_of(cells["search-command"]),
        re.M,
    )
    (figure,) = figures_of(cells["command-figure"])
    assert figure


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_figure_of_the_papers_is_drawn_of_ones_own_job(
    execute: Callable[..., Outputs],
) -> None:
    cells = execute("6_figures_of_your_job")
    assert_quiet(cells)
    figures = text_of(cells["order-runs"])
    summary = {(row["workers"], row["run"]): row for row in table_of(cells["summary-table"])}
    asp, bsp = (float(summary["8", run]["accuracy"]) for run in ("ASP", "BSP"))
    assert asp < bsp - 0.05
    for name in FIGURES.keys() - {"summary"}:
        assert f"{name} " in figures
        (figure,) = figures_of(cells[f"{name}-figure"])
        assert figure
    assert "restart" in text_of(cells["other-runs"])
