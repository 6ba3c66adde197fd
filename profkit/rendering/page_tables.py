"""What the page's template prints: the rows of its tables with their numbers as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from profkit.model.result import Result, Row
from profkit.rendering.digest import (
    Scale,
    code_lines,
    device_names,
    facts,
    findings_by_weight,
    health_note,
    kept_steps,
    kernels_by_name,
    no_advice,
    number_of,
    parts_of,
    phase_tree,
    scale_of,
    share_text,
    what_to_record,
    where_text,
)
from profkit.rendering.words import BASES, BOUNDS, CAUSES, SHARES, bound_term, cause_term, share_term
from profkit.units import NS_PER_MS, bytes_text, count_text, duration_text

__all__ = ["page_tables"]

_ROWS: Final = 40
_GAPS: Final = 15
_OF_A_PHASE: Final = 10
_MOST_ROWS: Final = 240
_MEMORY_STEPS: Final = 12
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_UNIT = re.compile(r"(?<=\d) (?=(?:%|ns|µs|us|ms|s|[KMGT]?i?B)\b|%)")
_USES = ("parameter", "gradient", "optimizer_state", "activation", "temporary", "workspace")
_TONES = {*SHARES, *BOUNDS, *CAUSES, *_USES, "small_kernels"}


def page_tables(result: Result) -> Row:
    """The names that the template knows, each with what it needs: text, rows, bars; never markup."""
    scale = scale_of(result)
    return {
        "result": result,
        "scale": scale,
        "verdict": _verdict(result, scale),
        "health": {"note": health_note(result), "ok": result.health.get("ok", True), "findings": findings_by_weight(result)[:_ROWS], "counts": _health_counts(result)},
        "no_advice": no_advice(result),
        "advice": [_advice(row, scale) for row in result.advice],
        "steps": _steps(result),
        "many_devices": len(result.devices) > 1,
        "device_names": device_names(result),
        "phases": _phases(result, scale),
        "noscript_kernels": kernels_by_name(result)[:20],
        "operators": _operators(result),
        "idle": _idle(result, scale),
        "syncs": sorted(result.syncs, key=lambda row: (-number_of(row.get("cost_ns")), -number_of(row.get("blocked_ns")))),
        "memory": _memory(result.memory),
        "communication": result.communication,
        "told_apart": any(row.get("waiting_ns") is not None for row in result.communication),
        "ranks": _ranks(result),
        "compared": any(row.get("holds_up_ns") is not None for row in result.ranks),
        "method": _method(result),
        "rows": _ROWS,
        "words": {"shares": SHARES, "bounds": BOUNDS, "bases": BASES},
        "ms": milliseconds,
        "digits": digits,
        "duration": duration_text,
        "size": bytes_text,
        "percent": share_text,
        "count": count_text,
        "clip": clip,
        "tone": tone,
        "where": where_text,
        "bound": bound_term,
        "bar": _bar,
    }  # fmt: skip


def digits(values: Iterable[Any]) -> int:
    """The decimals of a column of milliseconds, so that its largest value has three or four figures."""
    largest = max((abs(number_of(value)) for value in values), default=0) / NS_PER_MS
    return 0 if largest >= 10_000 else 1 if largest >= 100 else 2 if largest >= 10 else 3


def milliseconds(ns: float | None, decimals: int = 3) -> str:
    """A cell of a column of milliseconds: figures alone, since the header has the unit."""
    if ns is None:
        return "–"
    text = f"{ns / NS_PER_MS:,.{decimals}f}".replace(",", "\u202f")
    return f"<{10**-decimals:.{decimals}f}" if 0 < ns / NS_PER_MS < 0.5 * 10**-decimals else text


def clip(value: Any, length: int = 120) -> str:
    """A text from a file, cut in its middle: its ends tell most."""
    text = "–" if value in (None, "") else visible(str(value))
    return text if len(text) <= length else f"{text[: length * 2 // 3]}…{text[-(length // 3) :]}"


def visible(text: str) -> str:
    """Controls, and marks that turn the reading direction, as their number: they could hide what a name says."""
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text.replace("\n", " ").replace("\t", " "))


def tone(name: Any) -> str:
    """The class that colours a share, bound or cause; a name that is not known is grey."""
    return f"tone-{name}" if name in _TONES else "tone-unknown"


def _parts(shares: Mapping[str, int] | None) -> list[Row]:
    """Segments of a bar of length 1000, in drawing order."""
    segments, at = [], 0.0
    for name, ns, fraction in parts_of(shares):
        segments.append({"name": name, "label": share_term(name).label, "ns": ns, "fraction": fraction, "at": round(at * 1000, 2), "length": round(fraction * 1000, 2)})  # fmt: skip
        at += fraction
    return segments


def _bar(parts: list[Row]) -> str:
    """A bar in words, for those who do not see it."""
    return ", ".join(f"{part['label']} {share_text(part['fraction'])}" for part in parts)


def _verdict(result: Result, scale: Scale) -> Row:
    verdict, window = result.verdict, result.window
    kind, _, rest = _UNIT.sub("\u00a0", str(verdict["sentence"])).partition(": ")
    parts = [part | {"meaning": share_term(part["name"]).meaning} for part in _parts(verdict.get("shares"))]
    busy = sum(number_of(device.get("busy_ns")) for device in result.devices)
    kernels = sum(row["count"] for row in result.kernels)
    numbers = []
    if window.get("device_ns"):
        numbers.append((duration_text(scale(window["device_ns"])), f"on the device {scale.label}"))
        numbers.append((share_text(busy / window["device_ns"]), "of it busy"))
    if window.get("wall_ns"):
        steps = max(1, scale.divisor // max(1, len(result.devices)))
        numbers.append(
            (
                duration_text(window["wall_ns"] / steps),
                "by the host's clock" if steps == 1 else "by the host's clock per step",
            )
        )
    if kernels:
        numbers.append((scale.count(kernels), f"kernels {scale.label}"))
    launch = [(name.replace("_", " "), ns) for name, ns in (verdict.get("launch") or {}).items() if ns]
    return {
        "kind": kind if rest else None,
        "rest": rest or kind,
        "bound": verdict.get("bound"),
        "facts": facts(result),
        "parts": sorted(parts, key=lambda part: -part["ns"]),
        "bar": parts,
        "numbers": numbers,
        "launch": launch,
        "instead": _sentence(what_to_record(verdict)),
        # Advice is about a rank's own step: where another rank holds it up, that is not what to do first.
        "first": _advice(result.advice[0], scale)
        if result.advice and not verdict.get("held_up_by")
        else None,
        "caveats": verdict.get("caveats") or [],
        "confidence": verdict.get("confidence"),
        "confidence_means": BASES.get(str(verdict.get("confidence")), ""),
    }


def _sentence(text: str | None) -> str | None:
    return text[:1].upper() + text[1:] if text else None


def _health_counts(result: Result) -> list[tuple[str, str]]:
    health = result.health
    counts = [
        (
            "kernels without a launch",
            count_text(health.get("kernels_without_launch")),
            health.get("kernels_without_launch"),
        ),
        (
            "launches without a kernel",
            count_text(health.get("launches_without_kernel")),
            health.get("launches_without_kernel"),
        ),
        (
            "kernels from before the recording, left out",
            count_text(health.get("warm_up_tail")),
            health.get("warm_up_tail"),
        ),
        (
            f"profiler's own time, {scale_of(result).label}",
            duration_text(scale_of(result)(health.get("profiler_overhead_ns"))),
            health.get("profiler_overhead_ns"),
        ),
        *(
            (f"dropped: {clip(reason)}", count_text(n), n)
            for reason, n in (health.get("events_dropped") or {}).items()
        ),
    ]
    return [(name, text) for name, text, value in counts if value]


def _advice(row: Row, scale: Scale) -> Row:
    speedup = row.get("speedup") or {}
    link = str(row.get("link") or "")
    evidence = [
        where_text(*item.values()) if isinstance(item, Mapping) else str(item)
        for item in row.get("evidence") or ()
    ]
    return row | {
        "saving": duration_text(row["saving_ns"]) if row.get("saving_ns") else None,
        "change": f"{duration_text(row['before_ns'])} → {duration_text(row['after_ns'])} without the recorder" if row.get("before_ns") and row.get("after_ns") else None,
        "speedup_text": None if not speedup.get("likely") else f"{speedup['likely']:.2f}×",
        "range_text": None if None in (speedup.get("low"), speedup.get("high")) else f"{speedup['low']:.2f}× to {speedup['high']:.2f}×",
        "evidence": evidence,
        "code": "\n".join(code_lines(row.get("code"))),
        # Only to a place in the page, or to a web page: never a scheme that runs.
        "href": link if link.startswith(("#", "https://")) else None,
    }  # fmt: skip


def _steps(result: Result) -> Row:
    """The steps, as one device sees them: the sums over devices are divided by their number."""
    steps = result.window.get("steps") or []
    devices = max(1, len(result.devices))
    shown = steps if len(steps) <= _ROWS else [*steps[: _ROWS // 2], *steps[-_ROWS // 2 :]]
    longest = max((number_of(step.get("device_ns")) for step in shown), default=0) or 1
    rows = []
    for step in shown:
        length = number_of(step.get("device_ns"))
        part_of_longest = [
            part | {"at": part["at"] * length / longest, "length": part["length"] * length / longest}
            for part in _parts(step.get("shares"))
        ]
        busy = share_text(number_of(step.get("gpu_busy_ns")) / length) if length else "–"
        rows.append(step | {"parts": part_of_longest, "busy": busy, "device_ns": length / devices})
    return {
        "rows": rows,
        "left": len(steps) - len(shown),
        "kept": sum(bool(step.get("kept")) for step in steps),
    }


def _phases(result: Result, scale: Scale) -> Row:
    tree = phase_tree(result.phases)
    longest = (
        max(
            (number_of(row.get("gpu_inclusive_ns")) or number_of(row.get("host_wall_ns")) for _, row in tree),
            default=0,
        )
        or 1
    )
    rows = []
    for depth, row in tree[:200]:
        inclusive = number_of(row.get("gpu_inclusive_ns"))
        rows.append(row | {
            "depth": min(depth, 8),
            "parts": _parts(row.get("shares")),
            "inclusive": round(100 * inclusive / longest, 2),
            "kernels": scale.count(row.get("kernel_count")),
        })  # fmt: skip
    return {
        "rows": rows,
        "left": len(tree) - len(rows),
        "memory": any(row.get("peak_allocated_bytes") for _, row in tree),
        "digits": digits([longest / scale.divisor]),
        "unphased": duration_text(scale(result.health["gpu_ns_without_phase"]))
        if result.health.get("gpu_ns_without_phase")
        else None,
        "timed": any(row.get("gpu_inclusive_ns") for _, row in tree),
    }


def _operators(result: Result) -> Row:
    timed = any(number_of(row.get("gpu_ns")) for row in result.operators)
    key = "gpu_ns" if timed else "host_self_ns"
    ordered = sorted(result.operators, key=lambda row: -number_of(row.get(key)))
    return {
        "rows": _with_each_phase(ordered, _ROWS),
        "left": max(0, len(ordered) - _ROWS),
        "timed": timed,
        "key": key,
    }


def _with_each_phase(ordered: list[Row], most: int) -> list[Row]:
    """The first rows, and the first ones of each phase: those ``extra`` ones are shown when it is chosen."""
    seen: dict[Any, int] = {}
    rows: list[Row] = []
    for at, row in enumerate(ordered):
        phase = row.get("phase")
        seen[phase] = seen.get(phase, 0) + 1
        if at < most or (phase and seen[phase] <= _OF_A_PHASE and len(rows) < _MOST_ROWS):
            rows.append(row | {"extra": at >= most})
    return rows


def _idle(result: Result, scale: Scale) -> Row:
    causes = result.idle.get("by_cause") or {}
    longest = max((number_of(ns) for ns in causes.values()), default=0) or 1
    rows = [
        {"name": name, "label": cause_term(name).label, "meaning": cause_term(name).meaning, "ns": ns, "length": round(100 * ns / longest, 2)}
        for name, ns in sorted(causes.items(), key=lambda item: -number_of(item[1]))
        if ns
    ]  # fmt: skip
    gaps = result.idle.get("gaps") or []
    short = {row["name"]: row.get("short_name") or row["name"] for row in result.kernels}
    return {
        "total": duration_text(scale(result.idle.get("total_ns"))),
        "total_ns": result.idle.get("total_ns"),
        "causes": rows,
        "gaps": [
            gap
            | {
                "label": cause_term(gap.get("cause")).label,
                "before": short.get(gap.get("before"), gap.get("before")),
                "after": short.get(gap.get("after"), gap.get("after")),
            }
            for gap in _with_each_phase(gaps, _GAPS)
        ],
        "gaps_left": max(0, len(gaps) - _GAPS),
    }


def _memory(memory: Row | None) -> Row | None:
    """The memory section; keys that a snapshot's analysis may add are empty where they are absent."""
    if not memory:
        return None
    held = memory.get("by_category") or []
    total = sum(number_of(row.get("bytes")) for row in held) or 1
    added = {
        key: memory.get(key) or []
        for key in ("growth", "findings", "oom", "never_freed", "at_peak", "by_phase", "devices")
    }
    categories = [
        row
        | {
            "length": round(100 * number_of(row.get("bytes")) / total, 2),
            "share": number_of(row.get("bytes")) / total,
        }
        for row in held
    ]
    steps = memory.get("steps") or []
    shown = (
        steps
        if len(steps) <= _MEMORY_STEPS
        else [*steps[: _MEMORY_STEPS // 2], *steps[-_MEMORY_STEPS // 2 :]]
    )
    return memory | added | {
        "by_category": categories,
        "allocator": memory.get("allocator") or {},
        "steps": shown,
        "steps_left": len(steps) - len(shown),
    }  # fmt: skip


def _ranks(result: Result) -> list[Row]:
    """The ranks; waiting and holding up are sums of a rank's window, shown per step."""
    steps = max(1, kept_steps(result))
    rows = []
    for row in result.ranks:
        waits, holds = row.get("exposed_waiting_ns", row.get("waiting_ns")), row.get("holds_up_ns")
        rows.append(row | {
            "parts": _parts(row.get("shares")),
            "waits_ns": None if waits is None else waits / steps,
            "held_ns": None if holds is None else holds / steps,
        })  # fmt: skip
    return rows


def _method(result: Result) -> Row:
    method = result.method
    return {
        "versions": _flat(method.get("versions")),
        "options": [(name, text) for name, text in _flat(method.get("options")) if text != "–"],
        "thresholds": method.get("thresholds") or [],
        "left_out": [(name, text) for name, text in _flat(method.get("left_out")) if text not in ("–", "0")],
        "basis": [(BASES.get(name, name), share_text(share)) for name, share in (result.verdict.get("basis_shares") or {}).items() if share],
        "more": _flat({key: value for key, value in method.items() if key not in ("versions", "options", "thresholds", "left_out")}),
    }  # fmt: skip


def _flat(value: Any) -> list[tuple[str, str]]:
    """A map, a list or a scalar as names with one line of text each."""
    if isinstance(value, Mapping):
        return [(clip(name), clip(_plain(item), 300)) for name, item in value.items()]
    if isinstance(value, list):
        return [("", clip(_plain(item), 300)) for item in value]
    return [] if value is None else [("", clip(value, 300))]


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_plain(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return "–" if value is None else str(value)
