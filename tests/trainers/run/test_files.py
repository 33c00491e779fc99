from __future__ import annotations

from pathlib import Path

import pytest

from syncswitch.trainers.run.log import CheckpointFiles


def files_of(*percents: tuple[float, ...]) -> CheckpointFiles:
    files = CheckpointFiles()
    for some in percents:
        files.add(some, Path(f"{some[0]:g}"))
    return files


@pytest.mark.parametrize(
    ("spared", "dropped", "left"),
    [
        (None, ["5", "10", "20"], {30.0: Path("30"), 40.0: Path("40"), 41.0: Path("40")}),
        # It is not counted.
        (
            20.0,
            ["5", "10"],
            {20.0: Path("20"), 30.0: Path("30"), 40.0: Path("40"), 41.0: Path("40")},
        ),
    ],
)
def test_those_of_the_most_worker_steps_stay_and_one_that_is_spared(
    spared: float | None, dropped: list[str], left: dict[float, Path]
) -> None:
    files = files_of((10.0,), (5.0,), (20.0,), (40.0, 41.0), (30.0,))
    assert files.drop_all_but(2, spared) == [Path(one) for one in dropped]
    assert files.paths == left
    assert files.drop_all_but(2, spared) == []


def test_those_of_later_parts_go_together() -> None:
    files = files_of((10.0,), (20.0,), (40.0, 41.0), (30.0,))
    assert sorted(files.drop_after(20.0)) == [Path("30"), Path("40")]
    assert files.paths == {10.0: Path("10"), 20.0: Path("20")}
