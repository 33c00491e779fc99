from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.faults import cpu_quota
from syncswitch.trainers.faults.cpu_quota import CpuQuota, check_cpu_quota

BUSY = """
import threading
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
spin()
"""


def _reason_for_no_quota() -> str | None:
    try:
        check_cpu_quota()
    except UserError as error:
        return str(error)
    return None


needs_groups = pytest.mark.skipif(
    _reason_for_no_quota() is not None, reason=str(_reason_for_no_quota())
)


@pytest.fixture
def busy() -> Iterator[int]:
    """A process with two threads that compute."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    yield process.pid
    process.kill()
    process.wait()


def groups_of(process_id: int) -> str:
    return Path(f"/proc/{process_id}/cgroup").read_text()


def cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def left_over() -> list[Path]:
    found = Path("/sys/fs/cgroup").rglob("syncswitch-*")
    return [path for path in found if path.is_dir()]


@needs_groups
def test_a_process_gets_its_share_and_no_more(busy: int) -> None:
    home = groups_of(busy)
    with CpuQuota(busy, 20):
        assert groups_of(busy) != home
        before, start = cpu_seconds(busy), time.monotonic()
        time.sleep(1.0)
        # Above its share only by what a clock tick and a period let slip.
        used, passed = cpu_seconds(busy) - before, time.monotonic() - start
        assert used <= 0.2 * passed + 0.1
    assert groups_of(busy) == home
    assert left_over() == []


@needs_groups
def test_threads_move_with_their_process(busy: int) -> None:
    with CpuQuota(busy, 50):
        tasks = [task.name for task in Path(f"/proc/{busy}/task").iterdir()]
        assert len({groups_of(int(task)) for task in tasks}) == 1


@needs_groups
@pytest.mark.parametrize("percent", [1, 25, 100])
def test_every_share_is_taken(busy: int, percent: float) -> None:
    with CpuQuota(busy, percent) as quota:
        quota.close()
        assert left_over() == []


@needs_groups
def test_a_process_that_was_killed_meanwhile_leaves_no_group() -> None:
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    quota = CpuQuota(process.pid, 50)
    process.kill()
    quota.close()
    process.wait()
    assert left_over() == []


@needs_groups
def test_no_such_process_leaves_no_group() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    with pytest.raises(UserError, match="use by=thread or by=proxy"):
        CpuQuota(process.pid, 50)
    assert left_over() == []


def test_a_user_without_the_right_is_told_what_else_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A real folder in which no group can be made, for root neither.
    controller = cpu_quota._Controller(tmp_path / "gone", tmp_path / "gone", False)
    monkeypatch.setattr(cpu_quota, "_controller_of", lambda _: controller)
    with pytest.raises(UserError) as caught:
        check_cpu_quota()
    message = str(caught.value)
    assert message.startswith("by=cpu: no control group with a CPU quota can be made here (")
    assert message.endswith("use by=thread or by=proxy, or run as root")
