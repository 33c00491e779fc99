"""The documentation becomes a site that is whole, works offline, and knows every command."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from syncswitch.cli.run.main import main as runner
from syncswitch.cli.search.main import main as searcher
from tests import warm_program
from tests.documentation.pages import ROOT

pytest.importorskip("sphinx", reason="the site needs the extra docs")

PUBLIC_MODULES = ("", ".script", ".frames", ".figures", ".plugins")

BUILD = "import sys; from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def site(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The built site; a warning is an error."""
    return once("site", build) / "html"


def build(folder: Path) -> None:
    options = ["-W", "--keep-going", "-n", "-q"]
    done = warm_program.run_code(BUILD, *options, ROOT / "docs", folder / "html", folder=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_page_can_be_reached_from_the_first(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    wanted = {site / page.with_suffix(".html") for page in pages}
    reached, waiting = set(), [site / "index.html"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        links = re.findall(r'href="([^"#:]+\.html)', page.read_text())
        waiting += [(page.parent / link).resolve() for link in links]
    assert wanted <= reached
    assert all(path.is_file() for path in reached)


@pytest.mark.slow
def test_the_site_asks_no_other_server_for_anything(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|link)[^>]+(?:src|href)="(https?:)?//', re.IGNORECASE)
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text()), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", style.read_text()), style
    for picture in (ROOT / "docs/pictures").glob("*.svg"):
        assert not re.search(r"url\([\"']?https?:|<image|@import", picture.read_text()), picture


@pytest.mark.slow
def test_the_reference_has_every_command_and_option(site: Path) -> None:
    page = (site / "reference/commands.html").read_text()
    for path, command in (*walk("syncswitch-search", searcher), *walk("syncswitch-run", runner)):
        assert f">{path}" in page or path.split()[-1] in page
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                option = next(name for name in parameter.opts if name.startswith("--"))
                anchor = f'id="cmdoption-{path.replace(" ", "-")}-{option[2:]}"'
                assert anchor in page, f"{path} {option}"


def walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from walk(f"{path} {name}", child)


@pytest.mark.slow
def test_the_reference_has_every_public_name_and_column(site: Path) -> None:
    """It leaves out a method that nothing describes."""
    from syncswitch.storage import frames
    from syncswitch.storage.tables.base import METADATA

    python = (site / "reference/python.html").read_text()
    for ending in PUBLIC_MODULES:
        module = f"syncswitch{ending}"
        package = import_module(module)
        for name in {*package.__all__} & {*dir(package)}:
            path, thing = f"{module}.{name}", getattr(package, name)
            if inspect.ismodule(thing) or name == "__version__":
                continue
            assert f'id="{path}"' in python
            for member in vars(thing) if inspect.isclass(thing) else ():
                if member[0] != "_" and callable(getattr(thing, member)):
                    assert f'id="{path}.{member}"' in python
    tables = (site / "reference/database.html").read_text()
    for columns in frames.COLUMNS.values():
        assert all(f">{column.name}<" in tables for column in columns)
    for table in METADATA.tables:
        assert f">{table}<" in tables
    cells = re.findall(r"<td><p>(.*?)</p></td>", tables)
    nullable = [key for null, key in itertools.pairwise(cells) if null == "yes"]
    assert nullable
    assert not any(key.startswith("primary") for key in nullable)
