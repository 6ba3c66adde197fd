"""Comparisons and gates as strict JSON: the same bytes for the same comparison."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from profkit.rendering.comparison_document import ComparisonDocument, GateDocument
from profkit.rendering.report_json import json_value

__all__ = ["comparison_schema", "render_comparison_json", "render_gate_json"]

_FIRST = ("schema", "verdict", "sentence")


def render_comparison_json(comparison: ComparisonDocument) -> str:
    """The comparison as `profkit.compare/1`, indented, what matters most first."""
    return _text(_plain(comparison))


def render_gate_json(gate: GateDocument) -> str:
    """The gate as `profkit.gate/1`, indented."""
    return _text(_plain(gate))


@cache
def comparison_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `profkit.compare/1` that this version of profkit writes."""
    schema: dict[str, Any] = json.loads(
        files("profkit.rendering").joinpath("compare.schema.json").read_text("utf-8")
    )
    return schema


def _plain(document: msgspec.Struct) -> object:
    given = msgspec.to_builtins(document)
    return {**{name: given[name] for name in _FIRST if name in given}, **given}


def _text(plain: object) -> str:
    return json.dumps(json_value(plain), allow_nan=False, indent=1) + "\n"
