"""Tables of the reference that are made from the code: database, frames, policy file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sqlalchemy import Column, Table

from syncswitch.storage import frames
from syncswitch.storage.tables.base import METADATA

__all__ = ["database_tables", "frame_columns", "markdown_table", "policy_fields", "setup"]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; `|` in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def frame_columns(name: frames.FrameName) -> str:
    """The columns of one table for pandas."""
    return markdown_table(
        ["column", "type in pandas", "meaning"],
        [(f"`{c.name}`", f"`{frames.dtype_of(c)}`", c.meaning) for c in frames.COLUMNS[name]],
    )


def database_tables() -> str:
    """All tables of ours, each with its meaning."""
    tables = sorted(METADATA.tables.values(), key=lambda table: table.name)
    return "\n\n".join(map(_table, tables))


def _table(table: Table) -> str:
    columns = markdown_table(
        ["column", "type", "null", "key"],
        [(f"`{c.name}`", f"`{c.type}`", "yes" if c.nullable else "", _key(c)) for c in table.c],
    )
    return f"### `{table.name}`\n\n{table.info['meaning']}\n\n{columns}"


def _key(column: Column[Any]) -> str:
    own = ["primary"] if column.primary_key else []
    return ", ".join([*own, *(f"`{key.target_fullname}`" for key in column.foreign_keys)])


def policy_fields() -> str:
    """What a policy file holds: its JSON Schema as tables."""
    schema = json.loads(
        files("syncswitch.storage.policies").joinpath("policy.schema.json").read_text()
    )
    parts = [_fields(schema)]
    for name, part in schema["$defs"].items():
        if "properties" in part:
            parts.append(f"### `{name}`\n\n{part.get('description', '')}\n\n{_fields(part)}")
    return "\n\n".join(parts)


def _fields(part: Mapping[str, Any]) -> str:
    required = part.get("required", ())
    return markdown_table(
        ["field", "type", "required", "meaning"],
        [
            (
                f"`{name}`",
                _type(field),
                "yes" if name in required else "",
                field.get("description", ""),
            )
            for name, field in part["properties"].items()
        ],
    )


def _type(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        return f"`{field['$ref'].rsplit('/', 1)[-1]}`"
    if "anyOf" in field:
        return " or ".join(_type(one) for one in field["anyOf"])
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if field.get("type") == "array" and "items" in field:
        return f"array of {_type(field['items'])}"
    return f"`{field.get('type', 'any')}`"


class GeneratedTable(SphinxDirective):
    """`frame-columns NAME`, `database-tables` or `policy-fields`."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table, as the Markdown that was made of it."""
        made = {
            "frame-columns": frame_columns,
            "database-tables": database_tables,
            "policy-fields": policy_fields,
        }[self.name](*self.arguments)
        return self.parse_text_to_nodes(made, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the directives."""
    for name in ("frame-columns", "database-tables", "policy-fields"):
        app.add_directive(name, GeneratedTable)
    return {"parallel_read_safe": True}
