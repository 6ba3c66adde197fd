"""The report as Markdown, for a pull request or an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from profkit.errors import printable
from profkit.model.result import Result, Row
from profkit.rendering.digest import (
    Scale,
    code_lines,
    facts,
    findings_by_weight,
    gain_text,
    health_note,
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
from profkit.rendering.words import bound_term, cause_term, share_term
from profkit.units import bytes_text, count_text, duration_text

__all__ = ["as_code", "as_prose", "as_table", "render_markdown"]

_NAMES = 80
_TOP = 15
_SPECIAL = re.compile(r"([\\`*_\[\]|~]|^[-+#>=]|^\d+(?=[.)]))")


def render_markdown(result: Result) -> str:
    """The report as GitHub-flavoured Markdown; names from files are code spans, so they link and mention nothing."""
    scale = scale_of(result)
    sections = (
        _verdict,
        _health,
        _advice,
        _steps,
        _phases,
        _kernels,
        _operators,
        _idle,
        _syncs,
        _memory,
        _ranks,
    )
    blocks = [block for write in sections for block in write(result, scale)]
    return "\n\n".join(blocks) + "\n"


def _verdict(result: Result, scale: Scale) -> Iterable[str]:
    verdict = result.verdict
    yield f"## {as_prose(verdict['sentence'])}"
    yield as_prose(where_text(*facts(result), f"confidence: {verdict.get('confidence')}"))
    for line in filter(None, [what_to_record(verdict), *(verdict.get("caveats") or ())]):
        yield f"> {as_prose(line)}"
    rows = [
        [f"**{as_prose(share_term(name).label)}**", _bar(fraction), share_text(fraction), duration_text(scale(ns)), as_prose(share_term(name).meaning)]
        for name, ns, fraction in parts_of(verdict.get("shares"))
    ]  # fmt: skip
    yield from as_table(("The device is", "", "share>", f"time {scale.label}>", "meaning"), rows)


def _health(result: Result, scale: Scale) -> Iterable[str]:
    found = findings_by_weight(result)
    if found:
        yield f"### Trace health: {health_note(result)}"
        yield "\n".join(f"- **{row['severity']}**: {as_prose(row.get('message'))}" for row in found)


def _advice(result: Result, scale: Scale) -> Iterable[str]:
    nothing = no_advice(result)
    if nothing or result.advice:
        yield "### What to do"
    if nothing:
        yield nothing
    for number, row in enumerate(result.advice, 1):
        speedup = (row.get("speedup") or {}).get("likely")
        gain = where_text(
            gain_text(row, scale.saved),
            f"{speedup:.2f}x likely" if speedup else None,
            row.get("confidence"),
        )
        lines = [f"{number}. **{as_prose(row.get('title'))}** ({as_prose(gain)})", as_prose(row.get("why"))]
        yield "\n   ".join([*filter(None, lines), as_prose(row.get("action")), *_change(row)])


def _change(row: Row) -> list[str]:
    """The change as a block of code, fenced longer than any run of back-ticks in it."""
    code = str(row.get("code") or "")
    if not code:
        return []
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    lines = code_lines(code)
    return ["", f"{fence}python", *lines, fence]


def _steps(result: Result, scale: Scale) -> Iterable[str]:
    steps = result.window.get("steps") or []
    devices = max(1, len(result.devices))
    rows = [
        [as_code(row.get("name")), duration_text(number_of(row.get("device_ns")) / devices), duration_text(number_of(row.get("gpu_busy_ns")) / devices), "yes" if row.get("kept") else "no"]
        for row in steps[:12]
    ]  # fmt: skip
    if rows:
        yield "### Steps"
        yield from as_table(("step", "device time>", "GPU busy>", "counted"), rows, len(steps))


def _phases(result: Result, scale: Scale) -> Iterable[str]:
    tree = phase_tree(result.phases)
    rows = [
        [
            "&nbsp;&nbsp;" * min(depth, 8) + as_code(row.get("name")),
            duration_text(scale(row.get("gpu_inclusive_ns"))),
            duration_text(scale(row.get("gpu_exclusive_ns"))),
            duration_text(scale(row.get("host_wall_ns"))),
            as_prose(bound_term(row["bound"]).label.lower() if row.get("bound") else "–"),
        ]
        for depth, row in tree[:30]
    ]
    if rows:
        yield f"### Phases ({scale.label})"
        yield from as_table(("phase", "GPU, with children>", "GPU, own>", "host>", "bound"), rows, len(tree))


def _kernels(result: Result, scale: Scale) -> Iterable[str]:
    kernels = kernels_by_name(result)
    rows = [
        [
            as_code(row.get("short_name") or row["name"]),
            duration_text(scale(row["total_ns"])),
            share_text(row.get("share")),
            scale.count(row["count"]),
            duration_text(row["mean_ns"]),
            as_prose(bound_term(row.get("bound")).label),
            share_text(row.get("efficiency")) + (" (unsaturated)" if row.get("unsaturated") else ""),
        ]
        for row in kernels[:_TOP]
    ]
    if rows:
        yield f"### Kernels ({scale.label})"
        yield from as_table(
            ("kernel", "time>", "share>", "count>", "mean>", "bound", "efficiency>"), rows, len(kernels)
        )


def _operators(result: Result, scale: Scale) -> Iterable[str]:
    if result.kernels or not result.operators:
        return
    ordered = sorted(result.operators, key=lambda row: -number_of(row.get("host_self_ns")))
    rows = [
        [as_code(row.get("name")), duration_text(row.get("host_self_ns")), duration_text(row.get("host_ns")), count_text(row.get("count"))]
        for row in ordered[:_TOP]
    ]  # fmt: skip
    yield "### Operators (host time: the file has no kernels)"
    yield from as_table(("operator", "self>", "total>", "count>"), rows, len(ordered))


def _idle(result: Result, scale: Scale) -> Iterable[str]:
    causes = sorted(
        ((ns, name) for name, ns in (result.idle.get("by_cause") or {}).items() if ns), reverse=True
    )
    if causes:
        yield f"### Idle: {duration_text(scale(result.idle['total_ns']))} {scale.label}"
        rows = [
            [as_prose(cause_term(name).label), duration_text(scale(ns)), as_prose(cause_term(name).meaning)]
            for ns, name in causes
        ]
        yield from as_table(("cause", f"time {scale.label}>", "meaning"), rows)


def _syncs(result: Result, scale: Scale) -> Iterable[str]:
    ordered = sorted(
        result.syncs, key=lambda row: (-number_of(row.get("cost_ns")), -number_of(row.get("blocked_ns")))
    )
    rows = [
        [as_code(where_text(row.get("api"), row.get("operator"))), as_code(row.get("where") or row.get("phase")), count_text(row.get("count")),
         duration_text(scale(row.get("blocked_ns"))), duration_text(scale(row.get("cost_ns")))]
        for row in ordered[:10]
    ]  # fmt: skip
    if rows:
        yield f"### Synchronisation ({scale.label})"
        yield from as_table(("call", "where", "count>", "blocked>", "cost at most>"), rows, len(ordered))


def _memory(result: Result, scale: Scale) -> Iterable[str]:
    memory = result.memory
    if not memory:
        return
    peak, reserved = (bytes_text(memory.get(key)) for key in ("peak_allocated_bytes", "peak_reserved_bytes"))
    yield f"### Memory: peak {peak} allocated, {reserved} reserved"
    for title, key in (("at the peak", "at_peak"), ("never freed", "never_freed")):
        places = memory.get(key) or []
        rows = [
            [
                as_code(where_text(row.get("category"), row.get("where"))),
                bytes_text(row.get("bytes")),
                count_text(row.get("count")),
            ]
            for row in places[:10]
        ]
        if rows:
            yield from as_table((title, "size>", "blocks>"), rows, len(places))
    for row in (memory.get("oom") or [])[:3]:
        wanted, free = bytes_text(row.get("requested_bytes")), bytes_text(row.get("free_bytes"))
        yield f"**Out of memory**: {wanted} wanted, {free} free, {as_code(row.get('where'))}"


def _ranks(result: Result, scale: Scale) -> Iterable[str]:
    rows = [
        [str(row.get("rank")), duration_text(row.get("step_ns")), duration_text(row.get("late_ns")), "straggler" if row.get("straggler") else ""]
        for row in result.ranks[:32]
    ]  # fmt: skip
    if len(rows) > 1:
        yield "### Ranks"
        yield from as_table(("rank>", "step>", "late>", ""), rows, len(result.ranks))


def as_table(headers: Sequence[str], rows: list[list[str]], total: int = 0) -> Iterable[str]:
    """A table; a header that ends in ``>`` is that of a column of numbers."""
    if not rows:
        return
    lines = [
        [header.removesuffix(">") for header in headers],
        ["--:" if header.endswith(">") else "---" for header in headers],
        *rows,
    ]
    yield "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    if total > len(rows):
        yield f"… and {count_text(total - len(rows))} more."


def _bar(fraction: float) -> str:
    return "█" * max(1, round(fraction * 20))


def as_prose(value: Any) -> str:
    """Text as text: nothing in it formats, links, mentions or is HTML."""
    text = printable("" if value is None else str(value))
    text = text if len(text) <= 500 else f"{text[:500]}…"
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("@", "@\u200b").replace("://", ":\u200b//")
    return _SPECIAL.sub(r"\\\1", text)


def as_code(value: Any, limit: int = _NAMES) -> str:
    """A name as a code span, in which Markdown means nothing; safe in a table."""
    text = printable("" if value is None else str(value)).strip()
    if not text:
        return "–"
    text = text if len(text) <= limit else f"{text[: limit - 13]}…{text[-12:]}"
    return f"`{text.replace('`', chr(0x2019)).replace('|', chr(0xA6))}`"
