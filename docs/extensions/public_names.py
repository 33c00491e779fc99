"""The Python API by the names that programs use: what the `__all__` of each package lists.

The packages import their names when they are first used, so autodoc is told each of them, and what
annotations call by the module of its definition is linked to its public name.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import typing
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from docutils import nodes
from pydantic import BaseModel
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

__all__ = ["PACKAGES", "PublicNames", "public_objects", "setup"]

PACKAGES = (
    "syncswitch",
    "syncswitch.script",
    "syncswitch.frames",
    "syncswitch.figures",
    "syncswitch.plugins",
)


def public_objects(package: str) -> Iterator[tuple[str, Any]]:
    """Name and object of all that a package offers here, its modules and its version aside.

    What needs a library that is not installed is missing.
    """
    module = importlib.import_module(package)
    for name in sorted({*module.__all__} & {*dir(module)}, key=module.__all__.index):
        thing = getattr(module, name)
        if not inspect.ismodule(thing) and name != "__version__":
            yield name, thing


class PublicNames(SphinxDirective):
    """All public names of a package, documented one after the other."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The documentation of each name."""
        (package,) = self.arguments
        lines: list[str] = []
        for name, thing in public_objects(package):
            lines += _directive(f"{package}.{name}", thing)
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


def _directive(path: str, thing: Any) -> list[str]:
    if not inspect.isclass(thing) and not inspect.isfunction(thing):
        return [f".. py:data:: {path}", f"   :value: {thing!r}", ""]
    if not inspect.isclass(thing):
        return [f".. autofunction:: {path}", ""]
    return [f".. autoclass:: {path}", "   :members:", ""]


def _plain_types(app: Sphinx, thing: Any, bound: bool) -> None:
    """What pydantic checks besides the type is for pydantic."""
    function = inspect.unwrap(thing)
    if inspect.isfunction(function):
        with suppress(NameError):  # of an annotation that is for type checkers alone
            thing.__annotations__ = function.__annotations__ = typing.get_type_hints(function)


def _no_pydantic_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str, returned: str
) -> tuple[str, str] | None:
    """Of a model the fields say more than its signature, which repeats every limit."""
    return ("", "") if inspect.isclass(thing) and issubclass(thing, BaseModel) else None


def _link(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.Element
) -> nodes.Node | None:
    """A reference to the place of definition, or by the name alone, as one to the public name."""
    public = _public_paths().get(node["reftarget"])
    if public is None or node.get("refdomain") != "py":
        return None
    return env.domains.python_domain.resolve_xref(
        env, node["refdoc"], app.builder, "obj", public, node, text
    )


@functools.cache
def _public_paths() -> dict[str, str]:
    """Path in the reference, by name alone and by where a name is defined."""
    paths: dict[str, str] = {}
    for package in PACKAGES:
        for name, thing in public_objects(package):
            paths.setdefault(name, f"{package}.{name}")
            if hasattr(thing, "__qualname__"):
                paths[f"{thing.__module__}.{thing.__qualname__}"] = f"{package}.{name}"
    return paths


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the directive `public-names` and the links."""
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-before-process-signature", _plain_types)
    app.connect("autodoc-process-signature", _no_pydantic_signature)
    app.connect("missing-reference", _link)
    return {"parallel_read_safe": True}
