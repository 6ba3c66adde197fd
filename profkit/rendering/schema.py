"""The JSON Schema of `profkit.report/2`, made from the types of `profkit.rendering.document`."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from typing import Any, Final

import msgspec

from profkit.model.report import REPORT_SCHEMA
from profkit.model.rows import Row
from profkit.rendering.document import Document

__all__ = ["field_notes", "report_schema", "schema_of"]

_DESCRIPTION: Final = (
    "What `profkit analyze --format json` writes. Times are integer nanoseconds from the report's origin, sizes "
    "bytes; unknown is null. More names may be added."
)


@cache
def report_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the report that this version of profkit writes."""
    return schema_of(Document, REPORT_SCHEMA, _DESCRIPTION)


def schema_of(document: type[Row], name: str, description: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a document, made from its types and the docstrings below their fields."""
    (top,), parts = msgspec.json.schema_components([document], ref_template="#/$defs/{name}")
    for struct in _structs(document):
        _describe(parts[struct.__name__], struct)
    _agree_on(parts)
    own = parts.pop(str(top["$ref"]).rpartition("/")[2])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        **own,
        "title": name,
        "description": description,
        "$defs": parts,
    }


def field_notes(struct: type[msgspec.Struct]) -> dict[str, str]:
    """What the docstrings below a struct's fields say, by field; those that it inherits too."""
    notes: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if issubclass(each, Row):
            notes |= _notes_in(each)
    return notes


@cache
def _notes_in(struct: type[msgspec.Struct]) -> dict[str, str]:
    body = ast.parse(inspect.getsource(struct)).body[0]
    assert isinstance(body, ast.ClassDef)
    notes = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(field.target, ast.Name)
            assert isinstance(below.value, ast.Constant)
            notes[field.target.id] = inspect.cleandoc(str(below.value.value))
    return notes


def _describe(part: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    notes = field_notes(struct)
    if "description" in part:  # Python 3.13 takes the indentation out of docstrings, older ones do not
        part["description"] = inspect.cleandoc(part["description"])
    for field in msgspec.structs.fields(struct):
        part["properties"][field.encode_name]["description"] = _in_json(notes[field.name])


def _agree_on(value: Any) -> None:
    """Take out what only msgspec >= 0.23 says of a map's keys, and put null last as it does: one schema of all versions."""
    if isinstance(value, dict):
        if "additionalProperties" in value:
            value.pop("propertyNames", None)
        if "anyOf" in value:
            value["anyOf"].sort(key=lambda each: each == {"type": "null"})
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _agree_on(each)


def _in_json(note: str) -> str:
    """A note on a field in the words of JSON."""
    return note.replace("``", "`").replace("None", "null")


def _structs(top: type[Row]) -> list[type[msgspec.Struct]]:
    """Every struct that a document of this type may hold."""
    found: dict[type[msgspec.Struct], None] = {}
    waiting: list[Any] = [msgspec.inspect.type_info(top)]
    while waiting:
        each = waiting.pop()
        if isinstance(each, msgspec.inspect.StructType):
            if each.cls in found:
                continue
            found[each.cls] = None
            waiting += [field.type for field in each.fields]
        elif isinstance(each, msgspec.inspect.Metadata):
            waiting.append(each.type)
        else:
            inner = [getattr(each, name, ()) for name in ("item_type", "item_types", "value_type", "types")]
            waiting += [t for one in inner for t in (one if isinstance(one, tuple) else (one,))]
    return list(found)
