"""Peaks that the user states: ``--peaks FILE``, and what ``profkit hardware calibrate`` wrote."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profkit.errors import ReadError
from profkit.hardware.gpu import OVERHEAD_NS, QUEUE_NS, Gpu
from profkit.hardware.table import RATE_COLUMNS

__all__ = ["load_peaks"]

_HINT = (
    "Write one table: name, bandwidth_gbs, and rates in TFLOP/s (bf16_tensor, fp32, tf32_tensor...); "
    "see docs/models.md"
)
_SIZES = {"bandwidth_gbs": 1e9, "l2_mb": float(2**20), "memory_gb": 1e9}
_TIMES = {"overhead_ns": OVERHEAD_NS, "queue_ns": QUEUE_NS}
_TEXTS = ("name", "architecture", "compute_capability", "source")
_LARGEST = 2**20


def load_peaks(path: str | Path) -> Gpu:
    """Read a GPU's peaks from a TOML, JSON or CSV file (a first line of column names, one line of values).

    Keys are those of the package's gpus.csv: ``name``, ``bandwidth_gbs`` (GB/s), ``l2_mb``, ``sm_count``,
    ``overhead_ns``, ``queue_ns``, and rates in TFLOP/s: ``fp64``, ``fp64_tensor``, ``fp32``, ``fp16``,
    ``tf32_tensor``, ``fp16_tensor``, ``fp16_tensor_fp16acc``, ``bf16_tensor``, ``fp8_tensor``,
    ``fp8_tensor_fp16acc``, ``fp4_tensor``, ``int8_tensor``. All are optional but one rate or the bandwidth.

    Raises:
        ReadError: The file cannot be read, has a key or a value that makes no sense, or states no peak.
    """
    path = Path(path)
    row = _read(path)
    unknown = sorted(set(row) - {*RATE_COLUMNS, *_SIZES, *_TIMES, *_TEXTS, "sm_count"})
    if unknown:
        raise ReadError(path.name, f"unknown key {unknown[0]!r}", _HINT)
    values = {key: _number(path.name, key, value) for key, value in row.items() if key not in _TEXTS}
    peaks = {pair: values[key] * 1e12 for key, pair in RATE_COLUMNS.items() if key in values}
    sizes = {key: values[key] * unit for key, unit in _SIZES.items() if key in values}
    if not peaks and "bandwidth_gbs" not in sizes:
        raise ReadError(path.name, "it lists no peak rate", _HINT)
    return Gpu(
        name=str(row.get("name", path.stem)),
        architecture=str(row.get("architecture", "")),
        compute_capability=str(row.get("compute_capability", "")),
        sm_count=int(values["sm_count"]) if "sm_count" in values else None,
        memory_bytes=sizes.get("memory_gb"),
        bandwidth_bytes_per_s=sizes.get("bandwidth_gbs"),
        l2_bytes=sizes.get("l2_mb"),
        peaks=peaks,
        overhead_ns=values.get("overhead_ns", OVERHEAD_NS),
        queue_ns=values.get("queue_ns", QUEUE_NS),
        source=str(row.get("source", path.name)),
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1).decode("utf-8-sig")
    except OSError as error:
        raise ReadError(
            path, error.strerror or "cannot be opened", "Give the path of a peaks file"
        ) from error
    except UnicodeDecodeError as error:
        raise ReadError(path.name, "not a text file", _HINT) from error
    if len(text) > _LARGEST:
        raise ReadError(path.name, "too large for a peaks file", _HINT)
    try:
        row = _parsed(text, path.suffix.lower())
    except (ValueError, RecursionError, csv.Error) as error:
        raise ReadError(path.name, f"neither TOML, JSON nor CSV ({error})", _HINT) from error
    if not isinstance(row, dict):
        raise ReadError(path.name, "not one table of keys and values", _HINT)
    return {str(key): value for key, value in row.items() if value not in ("", None)}


def _parsed(text: str, suffix: str) -> Any:
    """By content: JSON begins with a brace, TOML has assignments, what is left is CSV."""
    if suffix == ".json" or text.lstrip().startswith("{"):
        return json.loads(text)
    if suffix == ".toml" or "=" in text.partition("\n")[0]:
        return tomllib.loads(text)
    return next(csv.DictReader(io.StringIO(text), restkey="more"), None)


def _number(where: str, key: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, bool) or not 0 < number < 1e12:
        raise ReadError(where, f"{key} is {str(value)[:40]!r}, not a positive number", _HINT)
    return number
