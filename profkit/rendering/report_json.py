"""A result as `profkit.report/1`: strict JSON, the same bytes for the same result."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
import numpy as np

from profkit.model.result import Result

__all__ = ["json_text", "json_value", "render_json", "report_schema"]


def render_json(result: Result) -> str:
    """The report as `profkit.report/1`, one table row a line, keys sorted within a row.

    NaN and infinities become null, since JSON has neither.
    """
    parts = (f"{json.dumps(key)}: {_section(json_value(value))}" for key, value in result.as_dict().items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


@cache
def report_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `profkit.report/1` that this version of profkit writes."""
    schema: dict[str, Any] = json.loads(
        files("profkit.rendering").joinpath("report.schema.json").read_text("utf-8")
    )
    return schema


def json_value(value: Any) -> Any:
    """A value as JSON types only: numpy scalars and arrays unwrapped, what is not finite null, text valid Unicode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.generic | np.ndarray):
        return json_value(value.tolist())
    if isinstance(value, Mapping):
        return {json_value(str(key)): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    raise TypeError(f"a report holds plain values, not {type(value).__name__}")


def json_text(value: object) -> str:
    """Typed rows as strict JSON on one line; text that is no valid Unicode has a question mark where it is not."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(
            json_value(msgspec.to_builtins(value)), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )


def _section(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(map(_line, value)) + "\n]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(", ", ": "))
