from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import RecordingError
from syncswitch.storage.importing.run_logs import (
    Clock,
    LogRow,
    latest_attempt,
    read_clock,
    read_run_log,
)
from tests.recordings import PAPER, needs_paper

CELLS = {"Wall time": ("100.5", "110.5"), "Step": ("0", "50"), "Value": ("0.25", "0.75")}
ROWS = [LogRow(100.5, 0, 0.25), LogRow(110.5, 50, 0.75)]

some_rows = st.lists(
    st.builds(
        LogRow,
        st.integers(0, 30).map(float),
        st.integers(0, 12),
        st.floats(0, 1),
    ),
    max_size=12,
)


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_bytes(text.encode())


def accuracy(folder: Path, text: str) -> list[LogRow]:
    write(folder, "acc.csv", text)
    return read_run_log(folder).accuracy


@pytest.mark.parametrize("order", list(itertools.permutations(CELLS)))
def test_columns_are_found_by_name(tmp_path: Path, order: tuple[str, ...]) -> None:
    lines = [",".join(order), *(",".join(CELLS[name][row] for name in order) for row in (0, 1))]
    assert accuracy(tmp_path, "\n".join(lines) + "\n") == ROWS


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffWall time,Step,Value\r\n100.5,0,0.25\r\n110.5,50,0.75\r\n",
        "Wall time,Step,Value\n100.5,0,0.25\n110.5,50,0.75",
        "wall_time, STEP ,value\n100.5,0,0.25\n110.5,50,0.75\n",
        '"Wall time","Step","Value"\n"100.5","0","0.25"\n\n"110.5","50","0.75"\n',
        "Run,Wall time,Step,Value,Progress\nx,100.5,0,0.25,y\nx,110.5,50,0.75,y\n",
        "Wall time,Step,Value\n1.005e2,0.0,2.5e-1\n110.5,50.0,.75\n",
        "Wall time,Step,Value\n110.5,50,0.75\n100.5,0,0.25\n",
    ],
    ids=["bom-crlf", "no-final-newline", "case", "quotes", "more-columns", "numbers", "order"],
)
def test_what_exports_differ_in_makes_no_difference(tmp_path: Path, text: str) -> None:
    assert accuracy(tmp_path, text) == ROWS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "acc.csv needs the columns wall time, step, value once each; found: none"),
        ("Wall time,Value\n1,1\n", "found: wall time, value"),
        ("Wall time,Step,Value,Step\n1,1,1,1\n", "once each; found: wall time, step, value, step"),
        ("Wall time,Step,Value\n", "acc.csv holds no row"),
        ("Wall time,Step,Value\n1,0,0.5\n2,1,nan\n", "line 3: value nan; allowed: an accuracy"),
        ("Wall time,Step,Value\n1,0,0.5\n\n2,1,91.5\n", "line 4: value 91.5; allowed: an accuracy"),
        ("Wall time,Step,Value\n1,0,-0.1\n", "line 2: value -0.1; allowed: an accuracy, 0 to 1"),
        ("Wall time,Step,Value\n1,-5,0.5\n", "line 2: step -5; allowed: 0 to 9007199254740992"),
        (
            f"Wall time,Step,Value\n1,{'9' * 400},0.5\n",
            "line 2: step 99999999999999999999... (400 characters); allowed: 0 to 90",
        ),
        ("Wall time,Step,Value\n1,1e300,0.5\n", "line 2: step 1e300; allowed: 0 to 90"),
        (f"Wall time,Step,Value\n1,{'9' * 5000},0.5\n", "line 2: not three numbers: ['1', '999"),
        ("Wall time,Step,Value\n1,1.5,0.5\n", "line 2: not three numbers: ['1', '1.5', '0.5']"),
        ("Wall time,Step,Value\n1,inf,0.5\n", "line 2: not three numbers"),
        ("Wall time,Step,Value\nnan,1,0.5\n", "line 2: wall time nan; allowed: seconds since 1970"),
        ("Wall time,Step,Value\n-1,1,0.5\n", "line 2: wall time -1; allowed"),
        ("Wall time,Step,Value\n1e300,1,0.5\n", "line 2: wall time 1e300; allowed"),
        ("Wall time,Step,Value\n1,0,0.5\n159", "line 3: not three numbers: ['159']"),
        ("Wall time,Step,Value\n1,0,x\n", "line 2: not three numbers: ['1', '0', 'x']"),
        ("Wall time,Step,Value\n1,0,0.5\n", "holds one row, and no log of the loss says how long"),
    ],
)
def test_what_is_impossible_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RecordingError) as error:
        accuracy(tmp_path, text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


def test_the_largest_step_is_taken(tmp_path: Path) -> None:
    text = f"Wall time,Step,Value\n1,0,0.5\n2,{2**53},0.5\n"
    assert accuracy(tmp_path, text)[-1].step == 2**53


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_where_a_run_diverged_its_accuracy_may_be_no_number(tmp_path: Path, value: str) -> None:
    write(tmp_path, "acc.csv", f"Wall time,Step,Value\n1,0,0.5\n2,9,{value}\n")
    assert not math.isfinite(read_run_log(tmp_path, has_diverged=True).accuracy[1].value)
    with pytest.raises(RecordingError, match=r"line 3: value .*; allowed: an accuracy"):
        read_run_log(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("0.5", "91.5"), "step 9: value 91.5; allowed: an accuracy"),
        (("nan", "0.5"), "starts with accuracy nan; leave run_dir empty"),
    ],
)
def test_where_a_run_diverged_it_still_has_accuracies(
    tmp_path: Path, values: tuple[str, str], message: str
) -> None:
    write(tmp_path, "acc.csv", "Wall time,Step,Value\n1,0,{}\n2,9,{}\n".format(*values))
    with pytest.raises(RecordingError, match=message):
        read_run_log(tmp_path, has_diverged=True)


def test_what_is_no_text_or_no_csv_is_refused(tmp_path: Path) -> None:
    (tmp_path / "acc.csv").write_bytes(b"Wall time,Step,Value\n1,0,\xff\n")
    with pytest.raises(RecordingError, match="not UTF-8"):
        read_run_log(tmp_path)
    (tmp_path / "acc.csv").write_text(f"Wall time,Step,Value\n1,0,{'9' * 200_000}\n")
    with pytest.raises(RecordingError, match="not CSV"):
        read_run_log(tmp_path)


def test_a_loss_may_be_anything(tmp_path: Path) -> None:
    write(tmp_path, "acc.csv", "Wall time,Step,Value\n1,0,0.5\n2,9,0.5\n")
    write(tmp_path, "loss.csv", "Wall time,Step,Value\n1,0,-3\n2,1,inf\n3,2,NaN\n")
    loss = [row.value for row in read_run_log(tmp_path).loss]
    assert loss[:2] == [-3.0, math.inf]
    assert math.isnan(loss[2])


class TestFiles:
    TEXT = "Wall time,Step,Value\n100.5,0,0.25\n110.5,50,0.75\n"

    def test_names_of_tensorboard_are_taken(self, tmp_path: Path) -> None:
        write(tmp_path, "run-validation-tag-epoch_accuracy.csv", self.TEXT)
        write(tmp_path, "run-train-tag-Loss.csv", self.TEXT)
        write(tmp_path, "notes.txt", "")
        log = read_run_log(tmp_path)
        assert log.accuracy == log.loss == ROWS

    def test_a_plain_name_comes_first(self, tmp_path: Path) -> None:
        write(tmp_path, "acc.csv", self.TEXT)
        write(tmp_path, "run-a-tag-acc.csv", "")
        write(tmp_path, "run-b-tag-acc.csv", "")
        assert read_run_log(tmp_path).accuracy == ROWS

    def test_two_candidates_are_one_too_many(self, tmp_path: Path) -> None:
        write(tmp_path, "run-b-tag-acc.csv", self.TEXT)
        write(tmp_path, "run-a-tag-acc.csv", self.TEXT)
        with pytest.raises(RecordingError, match=r"run-a-tag-acc.csv, run-b-tag-acc.csv; rename"):
            read_run_log(tmp_path)

    def test_what_is_there_instead_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(RecordingError, match=r"no acc\.csv .* the folder is empty"):
            read_run_log(tmp_path)
        write(tmp_path, "loss.csv", self.TEXT)
        with pytest.raises(RecordingError, match=r"no acc\.csv .* found loss\.csv"):
            read_run_log(tmp_path)
        with pytest.raises(RecordingError, match="no folder elsewhere"):
            read_run_log(tmp_path / "elsewhere")


class TestLatestAttempt:
    def test_a_restart_supersedes_what_was_written_beyond_it(self) -> None:
        rows = [LogRow(1, 0, 0.1), LogRow(2, 10, 0.2), LogRow(3, 20, 0.3)]
        again = [LogRow(9, 10, 0.4), LogRow(10, 15, 0.5)]
        assert latest_attempt([*rows, *again]) == [rows[0], *again]

    @given(some_rows)
    def test_a_row_counts_unless_a_later_one_is_at_its_step_or_before(
        self, rows: list[LogRow]
    ) -> None:
        ordered = sorted(rows, key=lambda row: row.wall_time_seconds)
        expected = [
            row
            for position, row in enumerate(ordered)
            if all(later.step > row.step for later in ordered[position + 1 :])
        ]
        assert latest_attempt(rows) == expected
        assert latest_attempt(expected) == expected


class TestClock:
    CLOCK = Clock([10, 20, 40], [5.0, 15.0, 20.0])

    @pytest.mark.parametrize(
        ("step", "seconds"),
        [(0, 0.0), (10, 0.0), (15, 5.0), (20, 10.0), (30, 12.5), (40, 15.0), (99, 15.0)],
    )
    def test_time_is_in_proportion_between_entries(self, step: int, seconds: float) -> None:
        assert self.CLOCK.at(step) == seconds
        assert self.CLOCK.total_seconds == 15.0

    @pytest.mark.parametrize(
        ("step", "positions"), [(5, (0, 0)), (10, (0, 1)), (19, (0, 1)), (20, (1, 2)), (40, (2, 2))]
    )
    def test_the_entries_around_a_step(self, step: int, positions: tuple[int, int]) -> None:
        assert self.CLOCK.around(step) == positions

    def test_a_processed_log_brings_its_time(self, tmp_path: Path) -> None:
        write(tmp_path, "acc.csv", "Wall time,Step,Value\n100,0,0.1\n200,10,0.2\n300,20,0.3\n")
        write(
            tmp_path,
            "acc_proc.csv",
            "Wall time,Raw Time,Step,Value,Time\r\n100,0,0,,0\r\n300,200,20,,150.5",
        )
        assert read_run_log(tmp_path).clock == Clock([0, 20], [0.0, 150.5])

    def test_the_loss_has_the_time_where_there_is_one_accuracy(self, tmp_path: Path) -> None:
        write(tmp_path, "acc.csv", "Wall time,Step,Value\n9000,20,0.3\n")
        write(tmp_path, "loss.csv", "Wall time,Step,Value\n100,0,1\n300,20,1\n")
        write(tmp_path, "loss_proc.csv", "Wall time,Time,Step\n100,0,0\n300,150,20\n")
        log = read_run_log(tmp_path)
        assert log.timed == log.loss
        assert log.clock == Clock([0, 20], [0.0, 150.0])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("Wall time,Step,Value\n100,0,0\n", "needs the columns wall time, step, time"),
            ("Wall time,Step,Time\n", r"other steps \(none\)"),
            ("Wall time,Step,Time\n100,0,0\n200,10,9\n", r"other steps \(0 to 10\).*\(0 to 20\)"),
            ("Wall time,Step,Time\n100,0,0\n200,9,9\n300,20,8\n", "back from 9 to 8 at step 20"),
            ("Wall time,Step,Time\n100,0,-1\n", "line 2: time -1; allowed: seconds, 0 to 2534"),
            (
                "Wall time,Step,Time\n100,0,1e300\n",
                "line 2: time 1e300; allowed: seconds, 0 to",
            ),
        ],
    )
    def test_one_of_another_run_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        write(tmp_path, "acc_proc.csv", text)
        log = [LogRow(100.0, 0, 0.1), LogRow(300.0, 20, 0.2)]
        with pytest.raises(RecordingError, match=message):
            read_clock(tmp_path / "acc_proc.csv", log)


@needs_paper
def test_a_published_log_with_a_restart() -> None:
    log = read_run_log(PAPER / "logs/cifar10_res32/switch_exp/b50_a50_run5")
    assert [row.step for row in log.accuracy].count(4000) == 1
    assert len(log.accuracy) == 29
    assert log.clock is not None
    assert log.clock.total_seconds == pytest.approx(5459.265, abs=0.001)
