"""Do later trainings keep the accuracy? Real searches, and then real trainings with each policy.

    python -m benchmarks.live_trust [--searches 20] [--uses 20] [--workers 4] [--json FILE]

Searches for the policy of digits with seeds of their own, and trains with each policy on further
seeds, that no search has used. A run keeps the accuracy if it loses at most beta against the mean
of BSP on these seeds, and does not diverge. Policies with the same switch point share these runs.
An hour and a half on two cores.
"""

from __future__ import annotations

import collections
import contextlib
import json
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks.console import parser
from benchmarks.limit import at_most
from benchmarks.problems import BASELINE_PERCENT, BETA
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.job.workload import Workload

_WORKLOAD = "digits"
# Beyond all seeds of searches, which are hashes: any would do.
_FIRST_SEED = 1_000_003


def _searched(seed: int, workers: int, settings: int, folder: str) -> tuple[float, float | None]:
    """Switch point and expected kept share of one search."""
    from syncswitch.searcher import search

    policy = search(
        _WORKLOAD,
        workers=workers,
        settings=settings,
        seed=seed,
        storage=f"sqlite:///{folder}/search-{seed}.db",
        checkpoints=Path(folder) / f"checkpoints-{seed}",
    )
    return policy.switch_percent, policy.kept_share


def _trained(
    workload: Workload, workers: int, percents: Iterable[float], uses: int
) -> dict[float, list[float | None]]:
    """Accuracies of further trainings by switch point; None for one that diverged."""
    identity = workload_identity(workload, workers, "bsp", "asp")
    with contextlib.closing(ClusterTrainer(workload, workers)) as trainer:
        return {
            percent: [
                None if record.diverged else record.converged_accuracy
                for number in range(uses)
                for record in [trainer.train(TrialSpec(identity, percent, _FIRST_SEED + number))]
            ]
            for percent in percents
        }


def main() -> None:
    """Prints how many of the later runs keep the accuracy."""
    options = parser(__doc__, searches=20, uses=20, workers=4, settings=6, json=Path).parse_args()
    with at_most(4 * 3600), tempfile.TemporaryDirectory() as folder:
        found = [
            _searched(seed, options.workers, options.settings, folder)
            for seed in range(options.searches)
        ]
        answers = collections.Counter(percent for percent, _ in found)
        print(
            "answers:", ", ".join(f"{p:g} %: {n}" for p, n in sorted(answers.items())), flush=True
        )
        percents = sorted({BASELINE_PERCENT, *answers}, reverse=True)
        accuracies = _trained(load_workload(_WORKLOAD), options.workers, percents, options.uses)
    whole = [one for one in accuracies[BASELINE_PERCENT] if one is not None]
    least = statistics.fmean(whole) - BETA
    shares = {
        percent: statistics.fmean(one is not None and one >= least for one in runs)
        for percent, runs in accuracies.items()
    }
    for percent, share in shares.items():
        print(f"{percent:g} % BSP: {100 * share:.0f} of 100 later runs keep the accuracy")
    kept = statistics.fmean(shares[percent] for percent, _ in found)
    stated = statistics.fmean(share for _, share in found if share is not None)
    print(
        f"{options.searches} searches with {options.uses} later runs each: {100 * kept:.1f} %"
        f" keep the accuracy (expected {100 * stated:.1f} %; of BSP alone"
        f" {100 * shares[BASELINE_PERCENT]:.1f} %)"
    )
    if options.json:
        options.json.write_text(
            json.dumps({"answers": found, "accuracies": list(accuracies.items())}) + "\n"
        )


if __name__ == "__main__":
    main()
