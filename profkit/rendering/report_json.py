"""The report as `profkit.report/2`: strict JSON, the same bytes for the same report."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from profkit.model.report import REPORT_SCHEMA
from profkit.model.rows import replace
from profkit.rendering.document import Document

__all__ = ["ascii_json", "json_text", "json_value", "render_json"]

_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7e]+")


def render_json(report: Document) -> str:
    """The report as `profkit.report/2`, one table row a line, in the order of the contract.

    NaN and infinities become null, since JSON has neither. Maps are sorted by name. Where no rank is late, nothing
    is called a straggler.
    """
    if report.verdict.straggler is None:
        report = replace(report, verdict=replace(report.verdict, straggler=msgspec.UNSET))
    lines = [f'"schema": {json_text(REPORT_SCHEMA)}']
    for field in msgspec.structs.fields(report):
        lines.append(f"{json_text(field.encode_name)}: {_section(getattr(report, field.name))}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def json_text(value: object) -> str:
    """Typed rows as strict JSON on one line; text that is no valid Unicode has a question mark where it is not."""
    try:
        return ascii_json(msgspec.json.encode(value, order="deterministic").decode())
    except UnicodeEncodeError:
        whole = json_value(msgspec.to_builtins(value, order="deterministic"))
        return json.dumps(whole, allow_nan=False, separators=(",", ":"))


def ascii_json(text: str) -> str:
    """JSON with escapes for all that is not printable ASCII: any stream takes it, and no terminal obeys it."""
    return _BEYOND_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)


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


def _section(value: object) -> str:
    if isinstance(value, list | tuple) and value:
        return "[\n" + ",\n".join(map(json_text, value)) + "\n]"
    return json_text(value)
