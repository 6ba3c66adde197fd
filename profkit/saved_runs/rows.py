"""A result as the rows of a history: everything per step of one device."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from profkit.comparison.side import Side, kept_steps
from profkit.errors import ReadError
from profkit.rendering import render_json
from profkit.rendering.document import Document
from profkit.saved_runs.report_file import report_of

__all__ = ["Values", "kernel_name_rows", "packed_report", "run_row", "table_rows", "unpacked_report"]

Values: TypeAlias = Mapping[str, str | int | float | None]
"""A row of a table by column."""

_LARGEST_REPORT: Final = 1 << 30


def run_row(report: Document) -> Values:
    """The row of ``runs``, without its id, its time and its revision."""
    side, inputs = Side([report]), report.inputs
    memory = report.memory
    has_times = bool(side.total_ns)
    busy = round(side.busy_per_step(sum(device.busy_ns for device in report.devices)))
    return {
        "inputs": " ".join(row.path for row in inputs),
        "format": _one(row.format for row in inputs),
        "tool": _one(row.tool for row in inputs),
        "tool_version": _one(row.tool_version for row in inputs),
        "gpu": _one(row.name for row in report.devices),
        "devices": len(report.devices),
        "steps": len(kept_steps(report)),
        "verdict": report.verdict.bound,
        "share": report.verdict.share,
        "sentence": report.verdict.sentence,
        "step_ns": side.step_ns if has_times else None,
        "busy_ns": busy if report.devices else None,
        "idle_ns": side.step_ns - busy if report.devices else None,
        "kernel_count": side.per_step(sum(row.count for row in report.kernels)) if report.devices else None,
        "peak_allocated_bytes": memory.peak_allocated_bytes if memory else None,
        "peak_reserved_bytes": memory.peak_reserved_bytes if memory else None,
    }


def kernel_name_rows(report: Document) -> list[Values]:
    """The kernels' names, each once."""
    keys = ("name", "short_name", "family")
    return [
        dict(zip(keys, row, strict=True))
        for row in {tuple(getattr(k, key) for key in keys): None for k in report.kernels}
    ]


def table_rows(report: Document, run: int, kernels: Mapping[str, int]) -> dict[str, list[Values]]:
    """The rows of the other tables, by table.

    Args:
        report: The report.
        run: Its id.
        kernels: The id of each kernel's name.
    """
    side = Side([report])

    def per_step(value: float | None) -> int | None:
        return None if value is None else round(side.per_step(value))

    tables: dict[str, Iterable[Values]] = {
        "steps": (
            {"number": at, "name": s.name, "kept": int(s.kept), "wall_ns": s.wall_ns, "device_ns": s.device_ns, "busy_ns": s.gpu_busy_ns}
            for at, s in enumerate(report.window.steps)
        ),
        "shares": ({"share": name, "ns": per_step(ns)} for name, ns in report.verdict.shares.items()),
        "idle": ({"cause": name, "ns": per_step(ns)} for name, ns in report.idle.by_cause.items()),
        "phases": (
            {"path": p.path, "count": side.per_step(p.count), "gpu_ns": per_step(p.gpu_inclusive_ns),
             "gpu_exclusive_ns": per_step(p.gpu_exclusive_ns), "host_ns": per_step(p.host_wall_ns),
             "kernel_count": None if p.kernel_count is None else side.per_step(p.kernel_count),
             "peak_allocated_bytes": p.peak_allocated_bytes}
            for p in {p.path: p for p in report.phases}.values()
        ),
        "kernels": (
            {"kernel": kernels[k.name], "grid": _shape(k.grid), "block": _shape(k.block), "count": side.per_step(k.count),
             "ns": per_step(k.total_ns), "mean_ns": k.mean_ns, "bound": k.bound, "basis": k.basis, "efficiency": k.efficiency}
            for k in report.kernels
        ),
        "memory": (
            {"category": m.category, "place": m.where, "bytes": m.bytes, "count": m.count}
            for m in (report.memory.at_peak if report.memory else ())
        ),
        "syncs": (
            {"api": s.api, "operator": s.operator, "place": s.where, "phase": s.phase, "count": side.per_step(s.count),
             "blocked_ns": per_step(s.blocked_ns), "cost_ns": per_step(s.cost_ns)}
            for s in report.syncs
        ),
        "communication": (
            {"collective": c.collective, "dtype": c.dtype, "count": side.per_step(c.count), "bytes": per_step(c.bytes),
             "ns": per_step(c.total_ns), "exposed_ns": per_step(c.exposed_ns)}
            for c in report.communication
        ),
    }  # fmt: skip
    return {table: [{"run": run, **row} for row in rows] for table, rows in tables.items()}


def packed_report(report: Document) -> bytes:
    """The whole report, to be shown again: `profkit.report/2` compressed with zlib."""
    return zlib.compress(render_json(report).encode())


def unpacked_report(packed: bytes, where: str) -> Document:
    """The report back.

    Raises:
        ReadError: It is damaged.
    """
    try:
        machine = zlib.decompressobj()
        text = machine.decompress(packed, _LARGEST_REPORT)
        if not machine.eof:
            raise ReadError(where, "the saved report is cut off or larger than 1 GiB", "Save the run again")
        document = msgspec.json.decode(text)
    except (zlib.error, ValueError, RecursionError, TypeError, msgspec.DecodeError) as error:
        raise ReadError(where, f"the saved report is damaged: {error}", "Save the run again") from error
    return report_of(document, where)


def _one(given: Iterable[str | None]) -> str | None:
    return ", ".join(sorted({value for value in given if value})) or None


def _shape(values: Iterable[int] | None) -> str | None:
    return None if values is None else "x".join(map(str, values))
