from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from syncswitch.searcher.training.resume import InterruptedRun, RunCheckpoints, interrupted_run
from syncswitch.storage.records.job import Protocols
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.schedule import checkpoint_path
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.trainer import Observer
from tests.failing import fails
from tests.storage.conftest import IDENTITY


def checkpoints(folder: Path, every_percent: float = 25, *, resume: bool = False) -> RunCheckpoints:
    return RunCheckpoints(TrialSpec(IDENTITY, 12.5, seed=3, resume=resume), folder, every_percent)


def leave(run: RunCheckpoints, *percents: float) -> list[Path]:
    paths = [checkpoint_path(run.spec, float(percent), ".npz") for percent in percents]
    for path in paths:
        path.write_bytes(b"state")
    return paths


@pytest.mark.parametrize(
    ("every_percent", "expected"),
    [(25, (25, 50, 75, 100)), (40, (40, 80, 100)), (100, (100,)), (33.3, (33.3, 66.6, 99.9, 100))],
)
def test_there_is_always_one_at_the_end(
    tmp_path: Path, every_percent: float, expected: tuple[float, ...]
) -> None:
    assert checkpoints(tmp_path, every_percent).spec.checkpoint_percents == expected
    leave(checkpoints(tmp_path, 10), 10, 20)
    resumed = checkpoints(tmp_path, every_percent, resume=True).spec
    assert resumed.checkpoint_percents == (10, 20, *expected)


def test_a_run_that_begins_afresh_overwrites_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    run = checkpoints(folder)
    assert "starts over" in run.how_to_go_on
    with closing(run.open()):
        leave(run, 25.0)
        assert "resume=True" in str(run.how_to_go_on)
        assert interrupted_run(folder, resume=False) is None  # it is under way
    assert interrupted_run(folder) == InterruptedRun(3, 12.5)
    with fails("run-interrupted"):
        checkpoints(folder).open()
    RunCheckpoints(TrialSpec(IDENTITY, 12.5, seed=4), folder, 25).open().close()
    resumed = checkpoints(folder, resume=True).open()
    assert resumed.use_id == run.use_id
    resumed.close()
    resumed.remove()
    assert not folder.exists()


def test_only_its_own_files_are_removed(tmp_path: Path) -> None:
    run = checkpoints(tmp_path)
    mine = leave(run, 25, 50, 100)
    half = mine[0].with_name(f".{mine[1].name}.4711")
    half.write_bytes(b"sta")
    other = tmp_path / "notes.txt"
    other.write_text("keep")
    run.remove()
    assert list(tmp_path.iterdir()) == [other]


def test_whoever_is_killed_while_it_removes_is_the_same_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a checkpoint is left, so is the use id; the one of the whole run goes last of them."""
    run = checkpoints(tmp_path).open()
    leave(run, 100, 25, 50, 12.5)
    states = []
    unlink = Path.unlink

    def noted(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        again = checkpoints(tmp_path, resume=True)
        left = sorted(tmp_path.glob("*.npz"))
        states.append((len(left), [one.name for one in left][:1], len(list(tmp_path.iterdir()))))
        if left:
            again._keep_use_id()
            assert again.use_id == run.use_id

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", noted)
        run.remove()
    assert [(one, files) for one, _, files in states if files] == [(3, 4), (2, 3), (1, 2), (0, 1)]
    assert "at-100.0" in states[2][1][0]
    assert not tmp_path.exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with fails("file-unusable", r"checkpoints is .*: the folder cannot be made \(.*\);"):
        checkpoints(tmp_path / "file" / "below").open()


def test_a_run_that_begins_anew_is_another_use(tmp_path: Path) -> None:
    first = checkpoints(tmp_path)
    first.open()  # and is killed before its first checkpoint
    for resume in (False, True):
        anew = checkpoints(tmp_path, resume=resume)
        anew.open()
        assert anew.use_id != first.use_id
    anew.close()
    assert not tmp_path.exists()


@pytest.mark.parametrize("text", ["", "no name", "\0"])
def test_a_damaged_name_is_drawn_anew(tmp_path: Path, text: str) -> None:
    first = checkpoints(tmp_path)
    first.open()
    leave(first, 25.0)
    (drawn,) = tmp_path.glob("*use")
    drawn.write_text(text)
    resumed = checkpoints(tmp_path, resume=True)
    resumed.open()
    assert drawn.read_text() == resumed.use_id


def test_the_run_that_was_interrupted_last_is_found(tmp_path: Path) -> None:
    assert interrupted_run(tmp_path / "none") is None
    (tmp_path / "notes.npz").write_bytes(b"somebody else's")
    assert interrupted_run(tmp_path) is None
    leave(checkpoints(tmp_path), 25, 50)
    later = RunCheckpoints(TrialSpec(IDENTITY, 100.0, seed=17), tmp_path, 25)
    os.utime(leave(later, 25)[0], (2**32, 2**32))
    assert interrupted_run(tmp_path) == InterruptedRun(17, 100.0)
    assert interrupted_run(tmp_path, seed=3) == interrupted_run(tmp_path, percent=12.5)
    assert interrupted_run(tmp_path, seed=3, percent=100.0) is None
    with fails("run-interrupted"):
        interrupted_run(tmp_path, resume=False)
    later.remove()
    assert interrupted_run(tmp_path) == InterruptedRun(3, 12.5)


def test_names_of_runs_that_left_nothing_else_go(tmp_path: Path) -> None:
    for seed, left in ((5, ()), (6, (25,)), (7, ())):
        run = RunCheckpoints(TrialSpec(IDENTITY, 12.5, seed), tmp_path, 25).open()
        for path in leave(run, *left):
            path.with_name(f".{path.name}.half").touch()
        (tmp_path / f".{run._use_file.name}.half").touch()
        for path in tmp_path.iterdir():
            os.utime(path, (1, 1))
        if seed != 7:  # that one lives
            run._living.close()  # type: ignore[union-attr]
    with closing(checkpoints(tmp_path).open()):
        seeds = sorted(path.name[:6] for path in tmp_path.glob("*use"))
        halves = [path.name[:7] for path in tmp_path.glob(".seed*")]
        assert halves == [".seed-7"], "half-written files of runs that live"
        assert seeds == ["seed-3", "seed-6", "seed-7"]


def test_what_an_interrupted_run_may_still_choose_is_in_its_checkpoint(tmp_path: Path) -> None:
    asp = IDENTITY.protocols
    local = Protocols("bsp", "local-sgd:8:semi-sync", "semi-sync")
    spec = replace(checkpoints(tmp_path).spec, candidates=(asp, local), fallbacks=(local, asp))
    log = RunLog(spec, Observer(), lambda accuracy: False)
    np.savez(checkpoint_path(spec, 25.0, ".npz"), history=log.history())
    found = interrupted_run(tmp_path)
    assert found == InterruptedRun(3, 12.5, asp, (asp, local), (local, asp))
    older = json.loads(log.history())
    del older["second phase"]["fallbacks"]
    np.savez(checkpoint_path(spec, 25.0, ".npz"), history=json.dumps(older))
    assert interrupted_run(tmp_path) == InterruptedRun(3, 12.5, asp, (asp, local))
