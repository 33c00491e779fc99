"""What programs may import: exactly these names, and what we show to people uses no others."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import syncswitch

ROOT = Path(__file__).parents[2]

PUBLIC = {
    "syncswitch": """
        AdaptiveStrategy AveragePeriod BinarySearchSampler Data Database DatabaseAwayError
        DatabaseError DeprecatedWarning Evaluation ExperimentalWarning FatalError FitRecord
        Forecast LightningCallback LocalSgd LoopSwitch NumpyFiles Observer PaperStrategy
        PipelinePieces PolicyCallback PolicyError PolicyRegistry RecordingError ReportData
        Reporter RetryableError SecondWay Source StoredTrial StreamedData Sweep SyncSwitchError
        TFRecordFiles TimingPolicy Training TransformersCallback TrialRecord TrialStore
        UserError Verdict Workload WorkloadError __version__ figures fit forecast frames
        from_compiled load_report load_workload lookup open_database plugins read_policy_file
        report script search sweep train write_policy
    """,
    "syncswitch.script": """
        output_dir report seed switch_step
    """,
    "syncswitch.frames": """
        describe evaluations events policies search_costs switch_points time_to_accuracy trials
        uses
    """,
    "syncswitch.figures": """
        accuracy_by_switch accuracy_over_time later_uses search_path
    """,
    "syncswitch.plugins": """
        NOBODY NO_GPU SECRET Address AfterAverage ClusterChoice Decided Exchange Job JobRequest
        Launcher NextTrial Observation OptionHint Part PartConfig PhaseRecord ProcessState
        ProcessStatus ProcessTrainer ProcessesChoice Protocols Release ReplicaStep RunConditions
        RunEvent ScheduledJob Strategy SyncProtocol TrainableJob Trainer TrainerChoice TrialSpec
        Wait last_output option program thread_limits
    """,
}
"""All public names. Whoever removes one breaks programs; `deprecated` warns of it first."""

TEXTS = ("README.md", "docs/**/*.md", "examples/**/*.md", "notebooks/*.md")
PROGRAMS = ("examples/**/*.py", "trainers/workloads/template.py")

MODULE = r"syncswitch(?:\.\w+)*"
FROM = re.compile(rf"\bfrom ({MODULE}) import (\([^)]*\)|[^\n;`]*)")
IMPORT = re.compile(rf"^\s*(?:>>> )?import ({MODULE})", re.MULTILINE)
DEEP = re.compile(r"\bsyncswitch\.(?:cli|searcher|storage|trainers)\b[\w.]*")

HEAVY = {
    "alembic",
    "keras",
    "numpy",
    "optuna",
    "pandas",
    "pydantic",
    "scipy",
    "sqlalchemy",
    "torch",
}


def tree_of(module: str) -> ast.Module:
    path = ROOT / "public" / f"{module.partition('.')[2] or '__init__'}.py"
    return ast.parse(path.read_text())


@pytest.mark.parametrize("module", PUBLIC)
def test_these_names_are_public_and_no_others(module: str) -> None:
    """Of a module whose names need libraries, `__all__` has those that can be imported."""
    (stated,) = (
        ast.literal_eval(node.value)
        for node in tree_of(module).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert stated == PUBLIC[module].split()
    offered = importlib.import_module(module)
    assert {*offered.__all__} == {*stated} & {*dir(offered), "__version__"}


@pytest.mark.parametrize("module", PUBLIC)
def test_each_name_is_in_the_module_and_says_what_it_is(module: str) -> None:
    offered = importlib.import_module(module)
    for name in {*offered.__all__} & {*dir(offered)}:
        value = getattr(offered, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__name__ == name
            assert inspect.getdoc(value), f"{name} has no docstring"


def test_a_name_is_in_one_module_alone() -> None:
    names = [name for names in PUBLIC.values() for name in names.split()]
    # A training script reports evaluations, a job has a report.
    assert {name for name in names if names.count(name) > 1} == {"report"}


@pytest.mark.parametrize("module", ["syncswitch", "syncswitch.plugins"])
def test_any_other_name_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
        importlib.import_module(module).nothing  # noqa: B018


@pytest.mark.parametrize("name", ["syncswitch", "syncswitch.plugins"])
def test_type_checkers_see_what_is_imported(name: str) -> None:
    """The imports for type checkers and the places from which names come are the same."""
    (block,) = (node for node in tree_of(name).body if isinstance(node, ast.If))
    seen = {
        (alias.asname or alias.name, str(node.module), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (call,) = (node for node in ast.walk(block) if isinstance(node, ast.Call))
    places = {}
    for module, names in ast.literal_eval(call.args[2]).items():
        for one in names.split():
            ours, _, theirs = one.partition("=")
            places[ours] = f"syncswitch.{module}".rstrip("."), theirs or ours
    assert seen == {(ours, *place) for ours, place in places.items()}
    assert places.keys() == {*PUBLIC[name].split()} - {"__version__"}


def test_the_version_is_that_of_the_distribution() -> None:
    assert syncswitch.__version__ == version("syncswitch")


def after(code: str, *, without: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """What a fresh interpreter has printed and loaded after `code`; some libraries are missing."""
    program = (
        "import json, sys\n"
        "from importlib.abc import MetaPathFinder\n"
        "class Missing(MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name.partition('.')[0] in {without!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        f"said = []\n{code}\n"
        "loaded = sorted({name.partition('.')[0] for name in sys.modules})\n"
        "print(json.dumps({'said': said, 'loaded': loaded}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("code", "but"),
    [
        ("import syncswitch", set()),
        ("import syncswitch.plugins, syncswitch.script", set()),
        ("from syncswitch import UserError, TimingPolicy, Evaluation, TrialRecord", set()),
        ("from syncswitch import LoopSwitch, AveragePeriod", set()),
        ("from syncswitch import open_database, PolicyRegistry", {"sqlalchemy"}),
        ("from syncswitch import lookup", {"pydantic", "sqlalchemy"}),
        ("from syncswitch import Workload, Data, StreamedData", {"numpy"}),
    ],
)
def test_a_name_imports_only_what_it_needs(code: str, but: set[str]) -> None:
    assert {*after(code)["loaded"]} & HEAVY <= but


def test_a_missing_library_is_named_with_what_installs_it() -> None:
    code = """
import syncswitch
for name in ("fit", "LocalSgd"):
    try:
        getattr(syncswitch, name)
    except ImportError as error:
        said.append(str(error))
"""
    assert after(code, without=("tensorflow", "keras", "torch"))["said"] == [
        "syncswitch.fit needs TensorFlow, which is missing; run: pip install tensorflow",
        "syncswitch.LocalSgd needs PyTorch, which is missing; run: pip install torch",
    ]


def test_everything_that_is_listed_can_be_imported() -> None:
    """`help` and `import *` import each name, and would end with the first that cannot be."""
    names: dict[str, object] = {}
    exec("from syncswitch import *", names)
    left_out = {*PUBLIC["syncswitch"].split()} - names.keys()
    assert left_out == {*PUBLIC["syncswitch"].split()} - {*dir(syncswitch)}
    if find_spec("torch") is None:
        assert left_out == {"LightningCallback", "LocalSgd", "SecondWay", "TransformersCallback"}


def shown() -> Iterator[tuple[Path, str]]:
    """All texts and programs for people."""
    for pattern in (*TEXTS, *PROGRAMS):
        for path in ROOT.glob(pattern):
            yield path, path.read_text()
    for path in ROOT.glob("notebooks/*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            yield path, "".join(cell["source"])


def test_what_people_read_imports_public_names_alone() -> None:
    files = set()
    for path, text in shown():
        for module, names in FROM.findall(text):
            files.add(path)
            for name in re.findall(r"\w+", names.split("#")[0].partition(" as ")[0]):
                assert name in PUBLIC.get(module, "").split(), f"{path}: {module}.{name}"
        for module in IMPORT.findall(text):
            assert module in PUBLIC, f"{path}: {module}"
        if path.parent != ROOT / "docs/reference":  # whose directives name what they document
            # A group of entry points is called so, too.
            deep = set(DEEP.findall(text)) - {"syncswitch.trainers"}
            assert not deep, f"{path}: {deep}"
    assert len(files) > 20
