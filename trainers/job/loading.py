"""Loads workloads by name, or from the file or module that defines them."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import re
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from syncswitch.storage.errors import OptionHint, UserError, WorkloadError, one_line

if TYPE_CHECKING:
    from syncswitch.trainers.job.workload import Workload


_FIELDS = (
    "total_worker_steps",
    "batch_size",
    "learning_rate",
    "momentum",
    "batch_after_switch",
    "momentum_after_switch",
    "momentum_stage_worker_steps",
    "largest_scaling",
    "evaluation_interval_worker_steps",
)
# A path may contain commas, too.
_BEFORE_FIELD = re.compile(r",(?=\w+=)")


def split_variant(reference: str) -> tuple[str, dict[str, Any]]:
    """Splits `REFERENCE,FIELD=VALUE,...` into the plain reference and the changed fields.

    Raises WorkloadError if there is no such field.
    """
    plain, *parts = _BEFORE_FIELD.split(reference)
    values: dict[str, Any] = {}
    for part in parts:
        field, _, text = part.partition("=")
        if field not in _FIELDS or field in values:
            raise WorkloadError(
                f"workload {reference!r}: {part!r} must set a field, each only once; give one of"
                f" {', '.join(_FIELDS)}, such as momentum_after_switch=zero",
                code="parameter-invalid",
            )
        try:
            values[field] = json.loads(text)
        except ValueError:
            values[field] = text
    return plain, values


def varied(workload: Workload, values: dict[str, Any]) -> Workload:
    """Returns the workload with other fields; raises WorkloadError if a value is impossible."""
    for field in ("learning_rate", "momentum"):
        value = values.get(field, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise workload.error(f"{field} is {value!r}; give a number")
    return replace(workload, **values) if values else workload


BUILT_IN = {
    "breast-cancer": "syncswitch.trainers.workloads.breast_cancer:workload",
    "clicks": "syncswitch.trainers.workloads.clicks:workload",
    "digits": "syncswitch.trainers.workloads.digits:workload",
    "resnet32-cifar10": "syncswitch.trainers.workloads.resnets:resnet32_cifar10",
    "resnet50-cifar100": "syncswitch.trainers.workloads.resnets:resnet50_cifar100",
}

_OF_FILE = "syncswitch_workload_"
_SOURCES = ("syncswitch.trainers.job.sources", "syncswitch.trainers.job.pipelines")


def normal_reference(reference: str) -> str:
    """Returns the reference without its folder, as stores record it; imports nothing."""
    place, colon, attribute = reference.rpartition(":")
    if colon and place.endswith(".py"):
        return f"{Path(place).name}:{attribute}"
    return reference


def need_tensorflow() -> None:
    """Raises UserError if TensorFlow is not installed, as in `requirements-light.txt`."""
    if importlib.util.find_spec("tensorflow") is None:
        raise UserError(
            "a workload needs TensorFlow, which is missing",
            remedy=(
                "run: pip install tensorflow",
                OptionHint("trainer", "command", "train a command, which does without, with"),
            ),
            code="package-missing",
        )


def load_workload(reference: str) -> Workload:
    """Loads `name`, `file.py:attribute` or `package.module:attribute`, or a variant of one.

    Raises:
        WorkloadError: It does not exist, cannot be imported, or is not a Workload.
    """
    need_tensorflow()
    # NumPy takes a while to import, and most functions of this module do without.
    from syncswitch.trainers.job.workload import Workload

    place, attribute = find_module(reference)
    try:
        with redirect_stdout(sys.stderr):
            module = _imported(place)
    except (WorkloadError, KeyboardInterrupt):
        raise
    except BaseException as error:
        alone = f"python {place}" if place.endswith(".py") else f"python -c 'import {place}'"
        raise WorkloadError(
            f"workload {reference!r}: importing {place} failed with {one_line(error)}; "
            f"try it alone: {alone}",
            code="workload-not-found",
        ) from error
    names = [name for name, value in vars(module).items() if isinstance(value, Workload)]
    listed = f"workloads in it: {', '.join(names)}" if names else "it holds no Workload"
    try:
        value = getattr(module, attribute)
    except Exception as error:  # a module may have a __getattr__ of its own
        why = "" if isinstance(error, AttributeError) else f"; {one_line(error)}"
        raise WorkloadError(
            f"workload {reference!r}: {place} has no {attribute!r} ({listed}{why})",
            code="workload-not-found",
        ) from error
    if not isinstance(value, Workload):
        raise WorkloadError(
            f"workload {reference!r}: {attribute!r} is of type {type(value).__name__}, "
            f"not syncswitch.Workload ({listed})",
            code="workload-not-found",
        )
    return varied(value, split_variant(reference)[1])


def find_module(reference: str) -> tuple[str, str]:
    """Splits a reference into module (or file) and attribute; imports nothing."""
    plain, _ = split_variant(reference)
    place, colon, attribute = BUILT_IN.get(plain, plain).rpartition(":")
    if not colon or not place or not attribute:
        raise WorkloadError(
            f"no workload {reference!r}: give one of {', '.join(sorted(BUILT_IN))}, "
            "or file.py:attribute, or package.module:attribute",
            code="workload-not-found",
        )
    if place.endswith(".py") and not Path(place).is_file():
        raise WorkloadError(
            f"workload {reference!r}: there is no file {place}", code="workload-not-found"
        )
    return place, attribute


def import_file(path: Path) -> ModuleType:
    """Imports a file, once."""
    path = path.resolve()
    # The file's own folder comes first, as in `python file.py`, so that its neighbours import.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = f"{_OF_FILE}{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise WorkloadError(
            f"workload file {path} cannot be imported as Python", code="workload-not-found"
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def place_of(kind: type) -> tuple[str, str]:
    """Returns module and name of a class; the module is empty for one from an imported file."""
    module = kind.__module__
    return "" if module.startswith(_OF_FILE) else module, kind.__qualname__


def class_at(module: str, name: str, reference: str | None) -> type | None:
    """Finds a class of syncswitch or the workload's module that `place_of` named elsewhere."""
    if module in _SOURCES:
        place: Any = importlib.import_module(module)
    elif reference is None:
        return None
    else:
        own = _imported(find_module(reference)[0])
        place = sys.modules.get(module) if module else own
    for step in name.split("."):
        place = getattr(place, step, None)
    return place if isinstance(place, type) else None


def _imported(place: str) -> ModuleType:
    if place.endswith(".py"):
        return import_file(Path(place))
    # Unlike `python -m`, a console script does not have the current folder on its path.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(place)
