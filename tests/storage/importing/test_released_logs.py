"""The authors' folder names are read as what was run."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncswitch.storage.errors import RecordingError
from syncswitch.storage.importing.manifest import ManifestRow, read_manifest
from syncswitch.storage.importing.released_logs import COLUMNS, read_released_runs
from tests.recordings import PAPER, needs_paper


def rows(checkout: Path, *folders: str) -> list[ManifestRow]:
    """What the manifest says of a checkout with these folders."""
    for folder in folders:
        (checkout / "data" / folder).mkdir(parents=True)
    path = checkout / "manifest.csv"
    path.write_text(read_released_runs(checkout).manifest())
    found = read_manifest(path)
    assert found.faults == found.notes == ()
    return list(found.rows)


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("cifar10_res32/baseline/bsp_1", ("bsp", 100.0, 1, 8, 64_000, None)),
        ("cifar10_res32/baseline/bsp_6", ("bsp", 100.0, 6, 8, 64_000, 100.0)),
        ("cifar10_res32/baseline/asp_4", ("bsp", 0.0, 4, 8, 64_000, 0.0)),
        ("cifar10_res32/switch_exp/b50-a50", ("bsp", 50.0, 1, 8, 64_000, 50.0)),
        ("cifar10_res32/switch_exp/b50_a50_run5", ("bsp", 50.0, 5, 8, 64_000, 50.0)),
        ("cifar10_res32/switch_exp/b5-a95-run5", ("bsp", 5.0, 5, 8, 64_000, 6.25)),
        ("cifar10_res32/switch_exp/b5-a95-run6", ("bsp", 5.0, 6, 8, 64_000, None)),
        ("cifar10_res32/switch_exp/b6-a94-run1", ("bsp", 6.25, 1, 8, 64_000, None)),
        ("cifar10_res32/switch_exp/b15-a85-run4", ("bsp", 25.0, 4, 8, 64_000, None)),
        ("cifar10_res32/switch_exp/a25-b75-run3", ("asp", 25.0, 3, 8, 64_000, 25.0)),
        ("cifar10_res32/switch_exp/a50-b50-run2", ("asp", 75.0, 2, 8, 64_000, 75.0)),
        ("cifar100_res50/12_88_5", ("bsp", 12.5, 5, 8, 128_000, 12.5)),
        ("cifar100_res50/694_1", ("bsp", 6.25, 1, 8, 128_000, 6.25)),
        ("cifar100_res50/asp_2", ("bsp", 0.0, 2, 8, 128_000, 0.0)),
        ("cluster_16/5050_run3", ("bsp", 50.0, 3, 16, 64_000, 50.0)),
        ("cluster_16/bsp_run1", ("bsp", 100.0, 1, 16, 64_000, 100.0)),
    ],
)
def test_a_folder_says_what_was_run(
    tmp_path: Path, folder: str, expected: tuple[object, ...]
) -> None:
    row, *without_logs = rows(tmp_path, folder)
    assert row.run_dir == folder
    assert (
        row.first_protocol,
        row.switch_percent,
        row.replicate,
        row.workers,
        row.total_worker_steps,
        row.stands_for_percent,
    ) == expected
    assert {row.first_protocol, row.second_protocol} == {"bsp", "asp"}
    diverged = [(one.switch_percent, one.run_dir) for one in without_logs if one.diverged]
    assert diverged == ([(25.0, None)] * 3 + [(0.0, None)] * 3 if row.workers == 16 else [])


def test_what_a_name_does_not_say_is_left_out_and_named(tmp_path: Path) -> None:
    folders = ("bsp_10", "bsp_9", "b50-a40-run1", "notes")
    for name in folders:
        (tmp_path / "data/cifar10_res32/baseline" / name).mkdir(parents=True)
    found = read_released_runs(tmp_path)
    assert [run.run_dir[-6:] for run in found.runs] == ["/bsp_9", "bsp_10"]
    assert found.unread == tuple(f"cifar10_res32/baseline/{name}" for name in folders[2:])
    assert found.logs == tmp_path / "data"
    # Given the folder itself, it is the same.
    assert read_released_runs(tmp_path / "data") == found


def test_another_folder_is_refused_with_what_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"none of the authors' runs in .*cake-lab"):
        read_released_runs(tmp_path)


@needs_paper
def test_all_runs_of_the_released_logs_are_read_as_they_are_known(tmp_path: Path) -> None:
    found = read_released_runs(PAPER / "logs")
    assert found.unread == ()
    path = tmp_path / "manifest.csv"
    path.write_text(found.manifest())
    known = {row.source: row for row in read_manifest(PAPER / "manifest.csv").rows}
    details = {"line", "model", "data_set"}
    changed = {
        source: (row.switch_percent, row.stands_for_percent)
        for row in read_manifest(path).rows
        for source in [row.source]
        if row.model_dump(exclude=details) != known.pop(source).model_dump(exclude=details)
    }
    assert known == {}
    # The runs in the other order count, and two labels are corrected.
    expected = {source: percents for source, percents in changed.items() if "/a" in source}
    assert len(expected) == 12
    assert set(changed) - set(expected) == {
        "resnet32-cifar10-8/cifar10_res32/switch_exp/b15-a85-run4"
    }
    assert all(percent == stands_for for percent, stands_for in expected.values())


def test_the_columns_are_those_of_a_manifest(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, "cifar100_res50/bsp_1")
    assert (row.model, row.data_set) == ("ResNet-50", "CIFAR-100")
    assert set(COLUMNS) <= set(ManifestRow.model_fields)
