from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import RecordingError
from syncswitch.storage.importing.imported_run import read_imported_run
from syncswitch.storage.importing.manifest import Manifest, ManifestRow, read_manifest
from tests.recordings import COLUMNS, PAPER, needs_paper, write_manifest

ROW = ("r32", "runs/a", "bsp", "asp", "25.0", "1", "8", "64000")


def manifest(
    folder: Path, *rows: tuple[object, ...], columns: tuple[str, ...] = COLUMNS
) -> Manifest:
    return read_manifest(write_manifest(folder / "manifest.csv", rows, columns))


def changed(**cells: object) -> tuple[object, ...]:
    return tuple(cells.get(name, cell) for name, cell in zip(COLUMNS, ROW, strict=True))


def test_a_row_is_read(tmp_path: Path) -> None:
    (row,) = manifest(tmp_path, ROW).rows
    assert (row.line, row.setup, row.run_dir) == (2, "r32", "runs/a")
    assert (row.first_protocol, row.second_protocol, row.switch_percent) == ("bsp", "asp", 25.0)
    assert (row.replicate, row.workers, row.total_worker_steps) == (1, 8, 64000)
    assert (row.diverged, row.model, row.momentum) == (None, None, None)
    assert row.source == "r32/runs/a"


def test_columns_are_found_by_name_whatever_their_order(tmp_path: Path) -> None:
    names = tuple(reversed([name.upper() for name in COLUMNS]))
    expected = manifest(tmp_path, ROW)
    text = "\ufeff" + ",".join(names) + "\r\n" + ",".join(reversed(ROW))
    (tmp_path / "other.csv").write_bytes(text.encode())
    assert read_manifest(tmp_path / "other.csv") == expected


def test_without_the_column_a_run_counts_for_its_switch_point(tmp_path: Path) -> None:
    assert manifest(tmp_path, ROW).rows[0].stands_for_percent == 25.0


def test_with_the_column_it_counts_for_what_is_declared(tmp_path: Path) -> None:
    found = manifest(
        tmp_path,
        (*ROW, "12.5"),
        (*changed(run_dir="runs/b"), ""),
        columns=(*COLUMNS, "stands_for_percent"),
    )
    assert [row.stands_for_percent for row in found.rows] == [12.5, None]


@pytest.mark.parametrize(
    ("cell", "diverged"), [("yes", True), ("No", False), ("1", True), ("false", False), ("", None)]
)
def test_divergence_may_be_declared(tmp_path: Path, cell: str, diverged: bool | None) -> None:
    found = manifest(tmp_path, (*ROW, cell), columns=(*COLUMNS, "diverged"))
    assert found.rows[0].diverged is diverged


def test_a_diverged_run_needs_no_logs_and_is_known_by_what_it_was(tmp_path: Path) -> None:
    columns = (*COLUMNS, "diverged")
    one, other = manifest(
        tmp_path,
        (*changed(run_dir="", replicate=1), "yes"),
        (*changed(run_dir="", replicate=2), "yes"),
        columns=columns,
    ).rows
    assert one.run_dir is None
    assert one.source == "r32: 8 workers, bsp,asp, 25 %, replicate 1"
    assert other.source == "r32: 8 workers, bsp,asp, 25 %, replicate 2"


def test_details_of_the_workload_are_kept_and_distinguish_it(tmp_path: Path) -> None:
    details = {
        "model": "ResNet32",
        "data_set": "CIFAR-10",
        "loss": "crossentropy",
        "optimizer": "sgd",
        "batch_size": "128",
        "learning_rate": "0.1",
        "momentum": "0.9",
        "metric": "accuracy",
    }
    plain = manifest(tmp_path, ROW).rows[0].identity
    (row,) = manifest(tmp_path, (*ROW, *details.values()), columns=(*COLUMNS, *details)).rows
    for name, value in details.items():
        assert getattr(plain, name) is None
        assert str(getattr(row.identity, name)) == value
    assert row.identity.fingerprint != plain.fingerprint
    assert (plain.name, plain.workers, plain.total_worker_steps) == ("r32", 8, 64000)
    assert (plain.first_protocol, plain.second_protocol) == ("bsp", "asp")


def test_unknown_columns_are_ignored_and_named(tmp_path: Path) -> None:
    found = manifest(tmp_path, (*ROW, "x", "y"), columns=(*COLUMNS, "gpu", ""))
    assert len(found.rows) == 1
    assert [note.text for note in found.notes] == ["ignored columns: gpu, (no name)"]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"switch_percent": "140"}, "switch_percent is '140'; allowed: less than or equal to 100"),
        ({"switch_percent": "nan"}, "switch_percent is 'nan'; allowed: a finite number"),
        ({"workers": "0"}, "workers is '0'; allowed: greater than or equal to 1"),
        ({"workers": str(2**31)}, f"workers is '{2**31}'; allowed: less than or equal to"),
        ({"workers": "eight"}, "workers is 'eight'; allowed: a valid integer"),
        ({"replicate": "-1"}, "replicate is '-1'; allowed: greater than or equal to 0"),
        ({"total_worker_steps": ""}, "total_worker_steps is empty"),
        (
            {"total_worker_steps": str(2**53 + 1)},
            f"total_worker_steps is '{2**53 + 1}'; allowed: less than or equal to {2**53}",
        ),
        ({"total_worker_steps": "9" * 400}, "total_worker_steps is '999999999999...9999999999999'"),
        ({"setup": " "}, "setup is empty"),
        ({"setup": "x" * 256}, "setup is 'xxx"),
        ({"setup": "a\0b"}, "setup is 'a\\x00b'"),
        ({"run_dir": ""}, "run_dir is empty; only a run that diverged may have no logs"),
        ({"run_dir": "x" * 1024}, "run_dir is longer than 1024 characters with its setup"),
        ({"second_protocol": "BSP"}, "both protocols are bsp; name two different ones"),
    ],
)
def test_a_bad_row_is_listed_and_the_others_go_in(
    tmp_path: Path, cells: dict[str, str], reason: str
) -> None:
    found = manifest(tmp_path, changed(run_dir="runs/first"), changed(**cells), ROW)
    assert [row.run_dir for row in found.rows] == ["runs/first", "runs/a"]
    (fault,) = found.faults
    assert fault.line == 3
    assert fault.text.startswith(reason)
    assert "\n" not in fault.text


def test_a_row_with_too_few_or_too_many_cells_is_listed(tmp_path: Path) -> None:
    found = manifest(tmp_path, ROW[:-1], (*ROW, "x"), ROW)
    assert [fault.text for fault in found.faults] == [
        "7 cells for 8 columns",
        "9 cells for 8 columns",
    ]
    assert len(found.rows) == 1


def test_the_same_run_twice_is_listed(tmp_path: Path) -> None:
    found = manifest(tmp_path, ROW, changed(run_dir="./runs//a/"), changed(setup="other"))
    assert [row.setup for row in found.rows] == ["r32", "other"]
    assert [(fault.line, fault.text) for fault in found.faults] == [
        (3, "the same run as in line 2")
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "lacks setup, run_dir, .*; columns found: none"),
        (
            b"setup,run,workers\na,b,8\n",
            "lacks run_dir, first.* found: setup, run, work",
        ),
        ((",".join((*COLUMNS, "Setup")) + "\n").encode(), "has setup twice; columns found: setup"),
        ((",".join(COLUMNS) + "\n\n,,,\n").encode(), "lists no run"),
        (b"setup,\xff\n", "not UTF-8 text"),
        ((",".join(COLUMNS) + '\n"a"b,c\n').encode(), r"not CSV \(line 2: "),
    ],
)
def test_a_manifest_that_cannot_be_used_is_one_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "manifest.csv"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=message) as error:
        read_manifest(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_manifest_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"cannot read the manifest .*: No such file"):
        read_manifest(tmp_path / "no.csv")


class TestFolder:
    def row(self, run_dir: str) -> ManifestRow:
        cells = dict(zip(COLUMNS, ROW, strict=True)) | {"run_dir": run_dir}
        return ManifestRow.model_validate({"line": 2, **cells})

    def test_is_below_the_logs(self, tmp_path: Path) -> None:
        assert self.row("a/b").folder(tmp_path) == tmp_path / "a/b"

    @pytest.mark.parametrize("run_dir", ["../x", "a/../b"])
    def test_elsewhere_is_refused(self, tmp_path: Path, run_dir: str) -> None:
        with pytest.raises(RecordingError, match="not below the folder of the logs"):
            self.row(run_dir).folder(tmp_path)

    def test_an_absolute_one_is_refused_wherever_it_is(self, tmp_path: Path) -> None:
        for place in (tmp_path / "run", Path("/etc")):
            with pytest.raises(RecordingError, match=f"run_dir {place} is absolute; name it from"):
                self.row(str(place)).folder(tmp_path)

    def test_a_loop_of_links_is_no_folder(self, tmp_path: Path) -> None:
        (tmp_path / "run").symlink_to("run")
        with pytest.raises(RecordingError):
            read_imported_run(self.row("run"), tmp_path)

    def test_a_link_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("run")
        assert self.row("link").folder(tmp_path) == tmp_path.resolve() / "run"

    def test_a_link_that_leads_elsewhere_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs/run").symlink_to("/etc")
        with pytest.raises(RecordingError, match="not below"):
            self.row("run").folder(tmp_path / "logs")


@given(st.binary(max_size=200), st.booleans())
def test_nothing_that_a_file_may_hold_is_more_than_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, with_header: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    header = (",".join(COLUMNS) + "\n").encode() if with_header else b""
    path.write_bytes(header + content)
    try:
        found = read_manifest(path)
        said = [f"{remark.run}: {remark.text}" for remark in (*found.faults, *found.notes)]
    except RecordingError as error:
        said = [str(error)]
    assert not [text for text in said if "\n" in text]


@needs_paper
def test_the_published_manifest() -> None:
    found = read_manifest(PAPER / "manifest.csv")
    assert len(found.rows) == 84
    assert found.faults == found.notes == ()
    assert len({row.identity.fingerprint for row in found.rows}) == 3
