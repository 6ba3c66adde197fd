"""What the page's scripts work on: the kernel table and the series of the plots, small whatever the input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from profkit.model.result import Result, Row
from profkit.rendering.digest import number_of, phase_tree, scale_of
from profkit.rendering.report_json import json_value
from profkit.rendering.words import BASES, BOUNDS, CAUSES, SHARES, Term

__all__ = ["KERNEL_ROWS", "has_plots", "page_data"]

KERNEL_ROWS: Final = 1000
"""Rows of the kernel table in the page. What is beyond stands there as one number."""

_TIMELINE_BARS = 6000
_CURVE_POINTS = 3000
_STACK_NODES = 500
_ALLOCATIONS = 600
_PER_ROW = 24
_DEVICES = 64
_STEPS = 64
_LEAST_SHARE = 0.0005
"""A kernel under this share of busy time is no point of the roofline."""
_NAME_BUDGET = 1_500_000
_CUT_NAME = 160
_NUMBERS = ("count", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "share", "efficiency", "flop", "dram_bytes", "tflops", "gbs")  # fmt: skip
_TEXTS = ("name", "short_name", "family", "dtype", "bound", "basis")


class _Strings:
    """The string table: each text once; when the budget is spent, texts are cut and say so."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._index: dict[str, int] = {}
        self._left = _NAME_BUDGET

    def add(self, value: Any) -> int:
        """The index of a text, -1 for none."""
        if value is None:
            return -1
        text = str(value)
        if text not in self._index:
            self._index[text] = len(self.texts)
            if len(text) > max(self._left, _CUT_NAME):
                text = f"{text[:_CUT_NAME]}… ({len(text) - _CUT_NAME} characters more are not in this page)"
            self._left -= len(text)
            self.texts.append(text.replace("\0", "\ufffd"))  # as HTML reads it, so that both halves agree
        return self._index[str(value)]


def page_data(result: Result) -> Row:
    """The data of the page as JSON types; texts of the tables are indices of ``strings``."""
    strings = _Strings()
    scale = scale_of(result)
    ordered = sorted(result.kernels, key=lambda row: -row["total_ns"])
    left = ordered[KERNEL_ROWS:]
    steps = _kept_steps(result, ordered)
    devices = result.devices[:_DEVICES]
    data = {
        "scale": {"divisor": scale.divisor, "label": scale.label},
        "kernels": [_kernel(row, strings, [row["name"] for row in steps], devices) for row in ordered[:KERNEL_ROWS]],
        "kernels_left": {"rows": len(left), "total_ns": sum(row["total_ns"] for row in left), "count": sum(row["count"] for row in left)},
        "phases": [{"path": strings.add(row.get("path")), "depth": depth} for depth, row in phase_tree(result.phases)[:200]],
        "steps": [{"name": strings.add(row["name"]), "busy_ns": row.get("gpu_busy_ns")} for row in steps],
        "devices": [{key: device.get(key) for key in ("id", "rank", "name", "peaks", "bandwidth_gbs", "busy_ns")} for device in devices],
        "timeline": _timeline(result.timeline, strings),
        "memory": _memory(result.memory, strings),
        "utilisation": [_series(row) for row in result.utilisation[:24]],
        "words": {
            "shares": _labels(SHARES),
            "bounds": _labels(BOUNDS),
            "causes": _labels(CAUSES),
            "bases": BASES,
        },
    }  # fmt: skip
    value: Row = json_value(data | {"strings": strings.texts})
    return value


def has_plots(result: Result, data: Row) -> bool:
    """Whether the page of this data shows a plot, and so needs plotly."""
    roofline = any(map(_on_roofline, result.kernels))
    known = {row["path"] for row in data["phases"]}
    families = len({path for row in data["kernels"] for path, _ in row["phases"] if path in known}) > 1
    return bool(roofline or families or data["timeline"] or data["memory"] or data["utilisation"])


def _on_roofline(row: Row) -> bool:
    known = all(number_of(row.get(key)) > 0 for key in ("flop", "dram_bytes", "tflops"))
    return known and number_of(row.get("share")) > _LEAST_SHARE and row.get("bound") != "overhead"


def _labels(terms: Mapping[str, Term]) -> dict[str, str]:
    return {name: term.label for name, term in terms.items()}


def _kept_steps(result: Result, kernels: list[Row]) -> list[Row]:
    """The kept steps by which kernels are told apart, in order of time; none where their rows do not say."""
    kept = [row for row in result.window.get("steps") or () if row.get("kept")]
    distinct = len({row["name"] for row in kept}) == len(kept) <= _STEPS
    return kept if distinct and any(row.get("steps") for row in kernels) else []


def _kernel(row: Row, strings: _Strings, steps: list[str], devices: Sequence[Row]) -> Row:
    by_step = row.get("steps") or {}
    by_device = row.get("devices") or {str(row.get("device")): row["total_ns"]}
    texts = {key: strings.add(row.get(key)) for key in _TEXTS}
    numbers = {key: row.get(key) for key in _NUMBERS}
    return (
        texts
        | numbers
        | {
            "tensor_core": row.get("tensor_core"),
            "unsaturated": bool(row.get("unsaturated")),
            "grid": row.get("grid"),
            "block": row.get("block"),
            # In the order of the page's steps and devices.
            "steps": [by_step.get(name, 0) for name in steps],
            "devices": [by_device.get(str(device.get("id")), 0) for device in devices],
            "phases": _pairs(row.get("phases"), strings),
            "operators": _pairs(row.get("operators"), strings),
            "modules": _pairs(row.get("modules"), strings),
            "lines": _pairs(row.get("source_lines"), strings),
        }
    )


def _pairs(value: Any, strings: _Strings) -> list[list[Any]]:
    """A map of names to numbers, or a list of names, as the largest [name, number] pairs."""
    if not value:
        return []
    if isinstance(value, str):
        value = [value]
    pairs: Iterable[tuple[Any, Any]] = (
        value.items() if isinstance(value, Mapping) else ((name, None) for name in value)
    )
    ordered = sorted(pairs, key=lambda pair: -number_of(pair[1]))[:_PER_ROW]
    return [[strings.add(name), number] for name, number in ordered]


def _timeline(timeline: Row | None, strings: _Strings) -> Row | None:
    lanes = (timeline or {}).get("lanes") or []
    if not timeline or not any(lane.get("bars") for lane in lanes):
        return None
    lanes = lanes[:48]
    share = max(1, _TIMELINE_BARS // len(lanes))
    out, left = [], 0
    for lane in lanes:
        # The longest bars of a lane tell its story; the count of those left out is shown.
        bars = sorted(lane.get("bars") or [], key=lambda bar: -bar[1])
        left += max(0, len(bars) - share)
        kept = sorted(bars[:share], key=lambda bar: bar[0])
        out.append({
            "kind": lane.get("kind"),
            "label": strings.add(lane.get("label")),
            "bars": [[bar[0], bar[1], *(strings.add(text) for text in (*bar[2:4], bar[4] if len(bar) > 4 else None))] for bar in kept],
        })  # fmt: skip
    given = timeline.get("left_out")
    return {
        "step": strings.add(timeline.get("step")),
        "device": timeline.get("device"),
        "start_ns": timeline["start_ns"],
        "end_ns": timeline["end_ns"],
        "left_out": left + (given if isinstance(given, int) else 0),
        "lanes": out,
    }


def _memory(memory: Row | None, strings: _Strings) -> Row | None:
    if not memory:
        return None
    curve = memory.get("curve") or []
    shown = [_curve(row) for row in (curve if isinstance(curve, list) else [curve])[:8]]
    curves = [row for row in shown if row["x"]]
    stacks = _flat_tree(memory.get("stacks"), strings)
    largest = _largest(memory.get("largest"), curves, strings)
    return {"curves": curves, "stacks": stacks, "largest": largest} if curves or stacks or largest else None


def _largest(largest: Row | None, curves: list[Row], strings: _Strings) -> Row | None:
    """The largest allocations as [start, end, bytes, category, where], on the axis of their device's curve.

    A start of null is before the history; an end of null after it.
    """
    rows = sorted((largest or {}).get("rows") or [], key=lambda row: -number_of(row.get("bytes")))
    if not largest or not rows:
        return None
    curve = next((curve for curve in curves if curve["id"] == largest.get("device")), None)
    timed = bool(curve and curve["timed"])
    start, end = ("start_ns", "end_ns") if timed else ("start_event", "end_event")
    left, more = largest.get("left_out") or {}, rows[_ALLOCATIONS:]
    return {
        "device": largest.get("device"),
        "timed": timed,
        "bars": [
            [row.get(start), row.get(end), row["bytes"], strings.add(row.get("category")), strings.add(_line_of(row))]
            for row in rows[:_ALLOCATIONS]
        ],
        "left": number_of(left.get("count")) + len(more),
        "left_bytes": number_of(left.get("peak_bytes")) + sum(number_of(row.get("bytes")) for row in more),
    }  # fmt: skip


def _line_of(row: Row) -> str | None:
    """Where an allocation came from; where no line of the program is known, the innermost frame."""
    return row.get("where") or next(iter(reversed(row.get("stack") or [])), None)


def _curve(curve: Row) -> Row:
    """A curve over time, or over the events of a history without times."""
    timed = len(_of(curve, "time_ns")) > 0
    x = list(_of(curve, "time_ns") if timed else _of(curve, "event"))
    picks = _peaks(list(_of(curve, "allocated_bytes")), len(x))
    series = {key: _of(curve, key) for key in ("allocated_bytes", "reserved_bytes")}
    return {
        "id": curve.get("id", curve.get("device")),
        "timed": timed,
        "x": [x[i] for i in picks],
        **{
            key: [values[i] for i in picks] if len(values) == len(x) else [] for key, values in series.items()
        },
        "phases": (curve.get("phases") or [])[:200] if timed else [],
    }


def _flat_tree(root: Row | None, strings: _Strings) -> list[list[Any]]:
    """The stacks at the peak as [parent, name, bytes, count], the largest first, parents before children."""
    if not root or not root.get("bytes"):
        return []
    flat: list[list[Any]] = []
    waiting: list[tuple[int, Row]] = [(-1, root)]
    while waiting and len(flat) < _STACK_NODES:
        at = max(range(len(waiting)), key=lambda i: number_of(waiting[i][1].get("bytes")))
        parent, node = waiting.pop(at)
        flat.append([parent, strings.add(node.get("name")), node.get("bytes"), node.get("count")])
        waiting.extend((len(flat) - 1, child) for child in node.get("children") or ())
    return flat


def _of(curve: Row, key: str) -> Any:
    value = curve.get(key)
    return [] if value is None else value


def _peaks(values: list[Any], length: int) -> list[int]:
    """Indices of at most `_CURVE_POINTS` points that keep each stretch's lowest and highest value."""
    if length <= _CURVE_POINTS or len(values) != length:
        return list(range(length))[:_CURVE_POINTS]
    size = -(-2 * length // _CURVE_POINTS)
    picks: set[int] = {0, length - 1}
    for start in range(0, length, size):
        stretch = range(start, min(start + size, length))
        picks |= {min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)}
    return sorted(picks)


def _series(row: Row) -> Row:
    time, value = list(row.get("time_ns") or []), list(row.get("value") or [])
    picks = _peaks([number_of(v) for v in value], min(len(time), len(value)))
    return {
        "device": row.get("device"),
        "metric": str(row.get("metric"))[:120],
        "time_ns": [time[i] for i in picks],
        "value": [value[i] for i in picks],
    }
