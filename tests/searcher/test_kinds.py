"""Jobs of many kinds, as `compile` and `fit` would get them: search, run with the policy, page."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from syncswitch.cli.run.main import main as run_program
from syncswitch.cli.search.main import main as search_program
from tests.searcher.command_line import Invoke
from tests.trainers.simulated.kinds import Kind, kinds

# How the metric is called where it is not the accuracy, and how much of it may be lost so that the
# switch is at half of the job.
_USUAL_METRIC = ("accuracy", 0.9)
_METRICS = {
    "imbalanced": ("AUC", 0.9),
    "regression": ("MeanAbsoluteError", 100.0),
    "autoencoder": ("MeanSquaredError", 100.0),
    "series": ("MeanAbsoluteError", 100.0),
    "own metric": ("within_one", 0.9),
}

# Those whose metrics, outputs or examples take a way of their own through the commands; weights,
# masks and layers are held against `fit` in `test_equals_fit.py`.
_USUAL = ("regression", "two tasks", "ragged text", "raw text", "own metric")
_TRIED = tuple(kinds()) if os.environ.get("KINDS") == "all" else _USUAL


def call(program: Any, *arguments: object) -> Result:
    return Invoke(program=program).succeeds(*map(str, arguments))


def measured(kind: Kind, path: Path) -> float:
    """What plain Keras says of the file of a model, by the metric that it is compiled with."""
    from syncswitch.trainers.model.tensorflow_api import keras, tf

    model = keras.saving.load_model(path)
    metrics = kind.metrics if isinstance(kind.metrics, dict) else list(kind.metrics)
    model.compile(loss=kind.loss, metrics=metrics, run_eagerly=True)
    x = tf.nest.map_structure(_text_as_tensor, kind.x)
    found = model.evaluate(x, kind.y, len(kind.y), return_dict=True, verbose=0)
    names = [name for name in found if not name.endswith("loss")]
    return float(found[min(names)])  # of two tasks the first one's


def _text_as_tensor(one: Any) -> Any:
    from syncswitch.trainers.model.tensorflow_api import tf

    return tf.constant(one.tolist()) if str(getattr(one, "dtype", "")) == "object" else one


@pytest.mark.usefixtures("one_model")
@pytest.mark.parametrize("name", _TRIED)
def test_it_is_searched_trained_and_reported(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    metric, threshold = _METRICS.get(name, _USUAL_METRIC)
    file = tmp_path / "job.py"
    file.write_text(
        f"from tests.trainers.simulated.kinds import workload as of\nworkload = of({name!r})\n"
    )
    job, stored = f"{file}:workload", ("--storage", url)
    monkeypatch.setenv("SYNCSWITCH_CHECKPOINTS", str(tmp_path / "checkpoints"))
    cluster = ("--trainer", "simulated", "--workers", 2)
    plan = ("--strategy", "paper", "--halvings", 1, "--runs", 1, "--threshold", threshold)
    call(search_program, "run", job, *cluster, *plan, *stored)
    model, page = tmp_path / "model.keras", tmp_path / "report.html"
    found = json.loads(call(run_program, job, *cluster, "-o", model, "--json", *stored).stdout)
    policy = found["policy"]
    assert (policy["version"], policy["switch_percent"], policy["metric"]) == (1, 50.0, metric)
    assert [(one["protocol"], one["end_worker_step"]) for one in found["phases"]] == [
        ("bsp", 8),
        ("asp", 16),
    ]
    assert found["final_value"] == pytest.approx(measured(kinds()[name], model), abs=1e-5)
    call(search_program, "report", job, "-o", page, *stored)
    assert f">converged {metric}" in page.read_text()
