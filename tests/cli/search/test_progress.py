"""What people see while a search goes on, and what no text may do to their terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from generated_trainer import GeneratedTrainer, identity
from rich.console import Console

from syncswitch.cli import console
from syncswitch.cli.console import progress_bars, rich_console
from syncswitch.cli.search.launch.making import ProgressReporter
from syncswitch.searcher.search.reporter import ReportedTrial
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.records.trial import Evaluation, TrialSpec

RUN = ReportedTrial(number=4, switch_percent=25.0, repeat=2, repeats=3, identity=identity())


def test_bars_show_brackets_as_they_are() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress_bars(console) as bars:
        bars.add_task("training net[bold] of [/x]", total=1)
        bars.refresh()
    assert "training net[bold] of [/x]" in console.file.getvalue()  # type: ignore[attr-defined]


def play(reporter: ProgressReporter) -> None:
    """A search as the loop reports it."""
    strategy = PaperStrategy(runs=3)
    progress = strategy.progress([Observation(100, 0.9)])
    record = GeneratedTrainer().train(TrialSpec(identity(), 25.0, 1, 1))
    reporter.on_repaired(1)
    for _ in range(2):
        reporter.on_state(1, strategy.most_runs, progress)
        reporter.on_run(RUN)
        reporter.on_progress(RUN, 1500)
        reporter.on_evaluation(RUN, Evaluation(1500, 1.0, 0.9, 0.1))
        reporter.on_failed(RUN, "a server was lost")
        reporter.on_wait(25.0)
        reporter.on_wait(25.0)
        reporter.on_run(RUN)
        reporter.on_finished(RUN, record)


EXPECTED = [
    "1 run of a search that was killed will be repeated",
    "continuing after 1 of at most 18 runs",
    *[
        "switch at 25 %, run 2 of 3 failed and will be repeated: a server was lost",
        "waiting for other searches, which are measuring 25 %",
        "[2/18] switch at 25 %, run 2 of 3: accuracy 0.95 in 55.0 s of training",
    ]
    * 2,
]


def test_lines() -> None:
    lines: list[str] = []
    reporter = ProgressReporter(lines.append)
    play(reporter)
    assert [_rounded(line) for line in lines] == EXPECTED
    record = GeneratedTrainer().train(TrialSpec(identity(), 25.0, 1, 1))
    reporter.on_finished(RUN, replace(record, inherited_seconds=record.training_seconds))
    assert lines[-1].endswith("in 55.0 s of training (recorded, at no cost)")


def test_bars_write_the_same_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars(rich_console(stderr=True)) as bars:
        play(ProgressReporter(lambda line: bars.console.print(line, markup=False), bars=bars))
    captured = capsys.readouterr()
    assert captured.out == ""
    written = [_rounded(line.rstrip()) for line in captured.err.splitlines()]
    assert [line for line in written if line in EXPECTED] == EXPECTED


def test_without_a_terminal_a_run_has_a_line_now_and_then() -> None:
    times = iter([0.0, 29.0, 31.0, 31.5, 40.0, 62.0, 100.0, 900.0])
    job = identity(total_worker_steps=1000, data_set=None, batch_size=None)
    lines: list[str] = []
    run = console.RunProgress(job, "", lines.append, begin="run: ", seconds=lambda: next(times))
    for step in (50, 51, 90, 99, 100, 199, 1000):
        run.on_evaluation(Evaluation(step, 0.0, 0.5, 0.1))
    assert lines == [
        "run: step 51 of 1,000, accuracy 0.5000, about 10 min left",
        "run: step 100 of 1,000, accuracy 0.5000, about 9 min left",
    ]


def _rounded(line: str) -> str:
    start, mark, rest = line.partition("accuracy ")
    number, _, tail = rest.partition(" ")
    return f"{start}{mark}{float(number):.2f} {tail}" if mark and tail else line


EVIL = "a\x1b]0;evilb\x9bc\u202ed"
HARMLESS = "a?]0;evilb?c?d"


@pytest.mark.parametrize(
    "show",
    [
        console.echo,
        console.print_text,
        console.print_note,
        console.print_error,
        lambda text: console.print_rows([[("name", text)]]),
        lambda text: console.rich_console(stderr=True).print(text, markup=False),
        lambda text: console.rich_console().print(text, style="bold", markup=False),
    ],
)
def test_no_text_steers_the_terminal(show: object, capsys: pytest.CaptureFixture[str]) -> None:
    show(EVIL)  # type: ignore[operator]
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert HARMLESS in " ".join(shown.split())
    assert not set(shown) & set("\x1b\x9b\u202e")
    assert console.printable("a\tb\nc é 漢") == "a\tb\nc é 漢"
