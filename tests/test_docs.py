"""What the documentation says to type works, page by page, and what it points to exists.

`tests/documentation/pages.py` has the marks that pages use.
"""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from syncswitch.cli.run.main import main as runner
from syncswitch.cli.search.main import main as searcher
from tests.documentation.pages import ROOT, Page, commands
from tests.documentation.play import play
from tests.program import PROGRAMS

DOCS = ROOT / "docs"
START = DOCS / "start.md"
OTHERS = ("README.md", "examples/pytorch/README.md", "notebooks/README.md")
PAGES = [Page(path) for path in (*(ROOT / name for name in OTHERS), *sorted(DOCS.rglob("*.md")))]
RUNNABLE = {"console", "python", "sql"}
LANGUAGES = {*RUNNABLE, "json", "mermaid", "text"}
COMMANDS: dict[str, click.Command] = {"syncswitch-search": searcher, "syncswitch-run": runner}

NOT_RUN = {
    "README.md": 3,
    "docs/howto/cluster.md": 2,
    "docs/howto/command.md": 3,
    "docs/howto/learn.md": 1,
    "docs/install.md": 3,
    "docs/howto/platforms.md": 3,
    "docs/howto/pytorch.md": 8,
    "docs/howto/stragglers.md": 1,
    "docs/papers.md": 8,
    "examples/pytorch/README.md": 3,
    "docs/second_phase.md": 9,
    "docs/which_one.md": 1,
}
"""Blocks that say themselves why they cannot run here."""

PLAYED = [
    page
    for page in PAGES
    if any(b.language in RUNNABLE and "not run" not in b.marks for b in page.blocks)
]
page_of = pytest.mark.parametrize("page", PAGES, ids=repr)


@pytest.fixture(scope="module")
def started(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The folder as the first page leaves it."""
    return once("start", lambda folder: play(Page(START), folder))


@pytest.mark.slow
@pytest.mark.parametrize("page", PLAYED, ids=repr)
def test_everything_on_a_page_works(
    page: Page, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "folder"
    if page.path == START:
        request.getfixturevalue("started")
    elif page.after == START:
        shutil.copytree(request.getfixturevalue("started"), folder, symlinks=True)
        if "mlflow.db" in page.path.read_text():
            shutil.copy(request.getfixturevalue("mlflow_template"), folder)
        play(page, folder)
    else:
        assert page.after is None, f"{page}: only {START.name} may come before"
        folder.mkdir()
        play(page, folder)


@page_of
def test_blocks_say_what_they_are(page: Page) -> None:
    for block in page.blocks:
        assert block.language in LANGUAGES or block.language.startswith("{"), (
            f"{page}, line {block.line}: a block is one of {', '.join(sorted(LANGUAGES))}"
        )


def test_what_is_not_run_says_why_and_is_counted() -> None:
    reasons = {
        repr(page): [b.marks["not run"] for b in page.blocks if "not run" in b.marks]
        for page in PAGES
    }
    assert all(all(found) for found in reasons.values())
    assert {page: len(found) for page, found in reasons.items() if found} == NOT_RUN


@page_of
def test_the_options_of_what_is_not_run_are_right(page: Page) -> None:
    for block in page.blocks:
        if block.language == "console" and "not run" in block.marks:
            for command in commands(block):
                if command.words[0] in PROGRAMS:
                    parse(*command.words)
                elif command.words[0] == "make":
                    assert is_target(command.words[1]), command.text


def is_target(name: str) -> bool:
    """Whether the Makefile has it."""
    return bool(re.search(rf"^{name}:", (ROOT / "Makefile").read_text(), re.MULTILINE))


def parse(program: str, *words: str) -> click.Context:
    """Lets click check the words, and runs nothing.

    Raises:
        click.UsageError: A command or an option is wrong.
    """
    command, rest = COMMANDS[program], list(words)
    while isinstance(command, click.Group):
        command = child(command, rest.pop(0))
    return command.make_context(program, rest)


def child(group: click.Group, name: str) -> click.Command:
    """A command of a group, which may import it only now."""
    found = group.get_command(click.Context(group), name)
    assert found is not None, name
    return found


@page_of
def test_links_lead_to_files(page: Page) -> None:
    for link in page.links:
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            target = page.path.parent / path if path else page.path
            assert target.is_file(), f"{page}: {link}"
            assert not anchor or anchor in anchors(target), f"{page}: {link}"


def anchors(path: Path) -> set[str]:
    """Of the headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@page_of
def test_what_is_named_in_the_text_exists(page: Page) -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    for code in page.code:
        if found := re.match(r"(?:time )?make ([\w-]+)$", code):
            assert is_target(found[1]), code
        if found := re.match(r"python -m (tests\.[\w.]+)", code):
            assert importlib.util.find_spec(found[1]), code
        if found := re.search(r"pip install '?syncswitch\[(\w+)\]", code):
            assert found[1] in setup["options.extras_require"], code
        if found := re.match(r"(syncswitch-search|syncswitch-run) .*--", code):
            check_options(*code.split())


def check_options(program: str, *words: str) -> None:
    """Every option that is written belongs to the command."""
    command = COMMANDS[program]
    for word in words:
        if isinstance(command, click.Group):
            command = child(command, word)
        elif word.startswith("--"):
            known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
            assert word.rstrip("]") in known, f"{program} {' '.join(words)}: {word}"


def test_every_environment_variable_of_ours_is_described() -> None:
    described = set(re.findall(r"SYNCSWITCH_\w+", (DOCS / "reference/environment.md").read_text()))
    used = {
        name
        for layer in ("searcher", "trainers", "storage")
        for path in (ROOT / layer).rglob("*.py")
        for name in re.findall(r"\"(SYNCSWITCH_[A-Z_]*[A-Z])\"", path.read_text())
    }
    assert used
    assert used <= described


def test_the_schema_of_policy_files_has_a_meaning_for_each_field() -> None:
    schema = json.loads((ROOT / "storage/policies/policy.schema.json").read_text())
    policy = schema["$defs"]["PolicyContent"]["properties"]
    assert all("description" in field for field in policy.values())
