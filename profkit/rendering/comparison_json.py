"""Comparisons and gates as strict JSON: the same bytes for the same comparison."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

import msgspec

from profkit.rendering.comparison_document import (
    COMPARE_SCHEMA,
    GATE_SCHEMA,
    ComparisonDocument,
    GateDocument,
)
from profkit.rendering.report_json import json_value
from profkit.rendering.schema import schema_of

__all__ = ["comparison_schema", "gate_schema", "render_comparison_json", "render_gate_json"]

_FIRST = ("schema", "verdict", "sentence")
_MEASURES: Final = (
    "Times are nanoseconds per step of one device, sizes bytes; unknown is null. More names may be added."
)


def render_comparison_json(comparison: ComparisonDocument) -> str:
    """The comparison as `profkit.compare/1`, indented, what matters most first."""
    return _text(_plain(comparison))


def render_gate_json(gate: GateDocument) -> str:
    """The gate as `profkit.gate/1`, indented."""
    return _text(_plain(gate))


@cache
def comparison_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `profkit.compare/1` that this version of profkit writes."""
    return schema_of(
        ComparisonDocument, COMPARE_SCHEMA, f"What `profkit compare --format json` writes. {_MEASURES}"
    )


@cache
def gate_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `profkit.gate/1` that this version of profkit writes."""
    return schema_of(GateDocument, GATE_SCHEMA, f"What `profkit gate --format json` writes. {_MEASURES}")


def _plain(document: msgspec.Struct) -> object:
    given = msgspec.to_builtins(document)
    return {**{name: given[name] for name in _FIRST if name in given}, **given}


def _text(plain: object) -> str:
    return json.dumps(json_value(plain), allow_nan=False, indent=1) + "\n"
