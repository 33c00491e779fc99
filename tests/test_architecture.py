"""The folder tree shows the architecture; these rules keep it true."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncswitch.trainers.cluster.processes.ray import START_HEAD

ROOT = Path(__file__).parents[1]
LIBRARY = ("storage", "trainers", "searcher")
LAYERS = (*LIBRARY, "cli")
PUBLIC = ("", *(path.stem for path in (ROOT / "public").glob("*.py")))
WRITTEN_FOR_USERS = "trainers/workloads/template.py"
HOME_OF_LIBRARY = {
    "tensorflow": "trainers",
    "keras": "trainers",
    "torch": "trainers",
    "lightning": "trainers",
    "transformers": "trainers",
    "optuna": "searcher",
    "sqlalchemy": "storage",
    "alembic": "storage",
    "pandas": "storage",
    "mlflow": "storage",
    "click": "cli",
    "rich": "cli",
}


def modules(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"{folder} holds no module"
    return found


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module or ""


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_one_way(layer: str) -> None:
    forbidden = {*LAYERS[LAYERS.index(layer) + 1 :], *PUBLIC}
    for path in modules(layer):
        if path == ROOT / WRITTEN_FOR_USERS:
            continue
        for name in imports(path):
            package, _, rest = name.partition(".")
            assert not (package == "syncswitch" and rest.split(".")[0] in forbidden), (
                f"{path}: {name}"
            )


def test_what_is_public_needs_no_command_line() -> None:
    for path in modules("public"):
        assert not any(name.startswith("syncswitch.cli") for name in imports(path)), path


@pytest.mark.parametrize("folder", ["benchmarks", "reproduction"])
def test_a_checkout_without_tests_measures_all_the_same(folder: str) -> None:
    for path in modules(folder):
        assert not [name for name in imports(path) if name.split(".")[0] == "tests"], path


@pytest.mark.parametrize("layer", LAYERS)
def test_each_library_has_one_home(layer: str) -> None:
    for path in modules(layer):
        for name in imports(path):
            home = HOME_OF_LIBRARY.get(name.split(".")[0], layer)
            assert home == layer, f"{path} imports {name}, which belongs into {home}/"


def test_records_and_errors_need_the_standard_library_alone() -> None:
    storage = ROOT / "storage"
    for path in (*modules("storage/records"), storage / "errors.py"):
        for module in imports(path):
            standard = module.split(".")[0] in sys.stdlib_module_names
            assert standard or module.startswith("syncswitch.storage.records."), (
                f"{path} imports {module}"
            )


@pytest.mark.parametrize("layer", LIBRARY)
def test_only_the_command_line_names_options_and_programs(layer: str) -> None:
    for path in modules(layer):
        for text in texts_of(ast.parse(path.read_text())):
            assert text == START_HEAD or not NAMED.search(text), f"{path}: {text!r}"


NAMED = re.compile(r"(?<![\w-])(--[a-z]|syncswitch-(run|search)\b)")


def texts_of(tree: ast.Module) -> Iterator[str]:
    """The string constants of a module, docstrings aside."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield str(node.value)


CODE_IN_DATA = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "copyreg"}


def test_nothing_that_comes_over_a_network_is_unpickled() -> None:
    """What pickles belongs to a process and its own children."""
    assert users({*CODE_IN_DATA, "multiprocessing"}) == {
        "trainers/cluster/processes/trainer.py",
        "trainers/cluster/processes/fork_server.py",
    }
    for path in modules("trainers"):
        assert "allow_pickle=True" not in path.read_text(), path


def test_what_is_fragile_or_large_stays_in_one_place() -> None:
    assert users({"tensorflow.python"}) == {"trainers/model/tensorflow_api.py"}
    pytorch = users({"torch", "lightning", "transformers", "accelerate"})
    assert {str(Path(path).parent) for path in pytorch} == {"trainers/pytorch"}


def users(libraries: set[str]) -> set[str]:
    """The trainers' modules that import one of these."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in modules("trainers")
        for name in imports(path)
        if any(f"{name}.".startswith(f"{library}.") for library in libraries)
    }


def loaded_after(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after `code`."""
    program = f"{code}\nimport sys\nprint(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


HEAVY = (
    "tensorflow keras optuna sqlalchemy alembic scipy pandas pyarrow matplotlib jinja2 mlflow torch"
)


@pytest.mark.parametrize(
    ("modules", "without"),
    [
        ("cli.search.main cli.run.main trainers.job.loading trainers.replay", HEAVY),
        ("storage.policies.registry", "alembic"),
        # pandas is imported only where somebody wants a table.
        ("storage.frames storage.export.tables searcher.search.search", "pandas pyarrow"),
        ("storage.policies.file", "sqlalchemy"),
    ],
)
def test_what_is_imported_is_light(modules: str, without: str) -> None:
    names = ", ".join(f"syncswitch.{name}" for name in modules.split())
    assert not set(without.split()) & loaded_after(f"import {names}")


@functools.cache
def _needs(layer: str) -> dict[str, set[str]]:
    """By module, what of its layer it imports as soon as it is imported itself, or later."""
    paths = {_name_of(path): path for path in modules(layer)}
    needs: dict[str, set[str]] = {}
    for name, path in paths.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= names & paths.keys() or {str(node.module)}
        needs[name] = found & paths.keys() - {name}
    return needs


def _name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("syncswitch", *(part for part in parts if part != "__init__")))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("depth", [3, 4, 9], ids=["folders", "folders in folders", "modules"])
def test_nothing_needs_what_needs_it(layer: str, depth: int) -> None:
    order: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for module, needed in _needs(layer).items():
        if (ROOT / Path(*module.split(".")[1:])).is_dir():
            continue  # a package itself, which may offer names of its modules
        rooms = (".".join(name.split(".")[:depth]) for name in (module, *needed))
        room, *others = rooms
        order.add(room, *(other for other in others if other != room))
    order.prepare()
