"""Which callbacks of `fit` a run may have, and what there is instead of others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncswitch.storage.errors import WorkloadError

_DONE_ANYWAY = ("History", "ProgbarLogger", "TerminateOnNaN")
_OTHERWISE = {
    "BackupAndRestore": "runs are kept by --checkpoint-every, and go on with --resume",
    "CSVLogger": "each test of a run is in the database; read it with syncswitch-search export",
    "EarlyStopping": "all runs of a search are equally long, and the search ends those early that"
    " are at rest; shorten epochs",
    "LearningRateScheduler": "give the optimizer a schedule over steps"
    " (keras.optimizers.schedules)",
    "ModelCheckpoint": "give syncswitch-run --output or --checkpoint-every",
    "ReduceLROnPlateau": "give learning_rate_boundaries, or the optimizer a schedule over steps",
    "SwapEMAWeights": "a run is tested as it is trained; leave use_ema out",
    "TensorBoard": "give the search, or syncswitch-run, --tensorboard",
}


def check_callbacks(callbacks: Iterable[Any], whose: str) -> None:
    """Refuses callbacks of Keras' `fit` that would be without effect.

    What a run does anyway is let through: it keeps its history, and ends where it diverges.

    Raises:
        WorkloadError: There is one of another kind; the line says what to do instead.
    """
    for callback in callbacks:
        name = type(callback).__name__
        if name not in _DONE_ANYWAY:
            instead = _OTHERWISE.get(
                name, "there is no fit that would call it; watch runs with an observer"
            )
            raise WorkloadError(f"{whose}: callback {name} cannot be used here; {instead}")
