"""A comparison as `profkit.compare/1`: strict JSON, the same bytes for the same comparison."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from profkit.comparison import Comparison
from profkit.rendering.report_json import json_value

__all__ = ["comparison_schema", "render_comparison_json"]


def render_comparison_json(comparison: Comparison) -> str:
    """The comparison as `profkit.compare/1`, indented, keys in the order of the contract."""
    return json.dumps(json_value(comparison.as_dict()), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


@cache
def comparison_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `profkit.compare/1` that this version of profkit writes."""
    schema: dict[str, Any] = json.loads(
        files("profkit.rendering").joinpath("compare.schema.json").read_text("utf-8")
    )
    return schema
