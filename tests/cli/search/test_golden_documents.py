"""What `--json` says to scripts: fields come, none goes or has another type of value.

`golden_documents.json` has the fields of the first release, by command; a field that comes is added
by `REWORD=1`, which removes none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Invoke

from tests.golden import GOLDEN_DATABASES, restored

STATED = Path(__file__).with_name("golden_documents.json")
COMMANDS = (
    "policy lookup generated --cluster real",
    "policy show generated --cluster real",
    "policy show generated --cluster real --why",
    "policy list",
    "policy diff generated@1 generated@2 --cluster real",
    "status",
    "switch-points",
    "trials",
    "trials --evaluations",
    "trials --events",
    "uses list",
    "profile list",
    "db check",
)
KINDS = {bool: "bool", int: "number", float: "number", str: "text", type(None): "null"}


def fields(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Each place in a document, with the type of what stands there."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from fields(one, f"{place}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from fields(one, f"{place}[]")
    else:
        yield place, KINDS[type(value)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return restored(GOLDEN_DATABASES[0], tmp_path_factory.mktemp("golden"))


@pytest.fixture
def invoke(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Invoke:
    monkeypatch.chdir(tmp_path)
    return Invoke(SYNCSWITCH_STORAGE=url)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_document_has_the_fields_that_it_had(invoke: Invoke, command: str) -> None:
    result = invoke(*command.split(), "--json")
    assert result.exit_code == (1 if command == "db check" else 0), result.stderr
    kinds: dict[str, set[str]] = {}
    for place, kind in fields(json.loads(result.stdout)):
        kinds.setdefault(place, set()).add(kind)
    found = {place: " or ".join(sorted(those)) for place, those in kinds.items()}
    stated = json.loads(STATED.read_text()) if STATED.exists() else {}
    if "REWORD" in os.environ:
        stated[command] = {**found, **stated.get(command, {})}
        STATED.write_text(json.dumps(stated, indent=1, sort_keys=True) + "\n")
    assert {place: found.get(place) for place in stated[command]} == stated[command]
