"""The report as Markdown, for a pull request or an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from profkit.errors import printable
from profkit.model.report import AdviceRow
from profkit.rendering.digest import (
    Scale,
    code_lines,
    confidence_text,
    facts,
    filled_by,
    findings_by_weight,
    gain_text,
    headline_of,
    health_note,
    kernels_by_name,
    memory_findings,
    no_advice,
    operators_by_name,
    parts_of,
    phase_tree,
    recorded_beside,
    recorded_label,
    scale_of,
    share_text,
    syncs_by_cost,
    what_to_record,
    where_text,
)
from profkit.rendering.document import Document
from profkit.rendering.numerics_tables import numerics_sections
from profkit.rendering.precision_tables import accidents_of, flop_cell, formats_of, note_of, precision_lines
from profkit.rendering.rank_lines import rank_lines
from profkit.rendering.sentences.labels import bound_term, cause_term, share_term
from profkit.units import bytes_text, count_text, duration_text

__all__ = ["as_code", "as_prose", "as_table", "render_markdown"]

_NAMES = 80
_TOP = 15
_SPECIAL = re.compile(r"([\\`*_\[\]|~]|^[-+#>=])")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")


def render_markdown(report: Document) -> str:
    """The report as GitHub-flavoured Markdown; names from files are code spans, so they link and mention nothing."""
    scale = scale_of(report)
    sections = (
        _verdict,
        _health,
        _advice,
        _steps,
        _phases,
        _kernels,
        _precision,
        _numerics,
        _operators,
        _idle,
        _syncs,
        _memory,
        _ranks,
    )
    blocks = [block for write in sections for block in write(report, scale)]
    return "\n\n".join(blocks) + "\n"


def _verdict(report: Document, scale: Scale) -> Iterable[str]:
    verdict = report.verdict
    yield f"## {as_prose(verdict.sentence)}"
    yield as_prose(where_text(*facts(report), confidence_text(verdict.confidence)))
    for line in filter(None, [what_to_record(verdict), *verdict.caveats]):
        yield f"> {as_prose(line)}"
    shares, own_scale = headline_of(report)
    rows = [
        [f"**{as_prose(share_term(name).label)}**", _bar(fraction), share_text(fraction), duration_text(own_scale(ns)), as_prose(share_term(name).meaning)]
        for name, ns, fraction in parts_of(shares)
    ]  # fmt: skip
    yield from as_table(("The device is", "", "share>", f"time {scale.label}>", "meaning"), rows)
    if beside := recorded_beside(report):
        yield as_prose(beside)


def _health(report: Document, scale: Scale) -> Iterable[str]:
    found = findings_by_weight(report)
    if found:
        yield f"### Trace health: {health_note(report)}"
        yield "\n".join(f"- **{row.severity}**: {as_prose(row.message)}" for row in found)


def _advice(report: Document, scale: Scale) -> Iterable[str]:
    nothing = no_advice(report)
    if nothing or report.advice:
        yield "### What to do"
    if nothing:
        yield nothing
    for number, row in enumerate(report.advice, 1):
        gain = where_text(
            gain_text(report, row),
            f"{row.speedup.likely:.2f}x likely" if row.speedup else None,
            row.confidence,
        )
        lines = [
            f"{number}. **{as_prose(row.title)}** ({as_prose(gain)})",
            as_prose(row.why),
            as_prose(row.action),
        ]
        # What belongs to an entry of a list is indented as far as the entry's text.
        yield f"\n{' ' * len(f'{number}. ')}".join([*filter(None, lines), *_change(row)])


def _change(row: AdviceRow) -> list[str]:
    """The change as a block of code, fenced longer than any run of back-ticks in it."""
    if not row.code:
        return []
    longest = max((len(run) for run in re.findall("`+", row.code)), default=0)
    fence = "`" * max(3, longest + 1)
    return ["", f"{fence}python", *code_lines(row.code), fence]


def _steps(report: Document, scale: Scale) -> Iterable[str]:
    steps = report.window.steps
    devices = max(1, len(report.devices))
    rows = [
        [as_code(row.name), duration_text(row.device_ns / devices), duration_text(row.gpu_busy_ns / devices), "yes" if row.kept else "no"]
        for row in steps[:12]
    ]  # fmt: skip
    if rows:
        yield "### Steps"
        yield from as_table(("step", "device time>", "GPU busy>", "counted"), rows, len(steps))


def _phases(report: Document, scale: Scale) -> Iterable[str]:
    tree = phase_tree(report.phases)
    rows = [
        [
            "&nbsp;&nbsp;" * min(depth, 8) + as_code(row.name),
            duration_text(scale(row.gpu_inclusive_ns)),
            duration_text(scale(row.gpu_exclusive_ns)),
            duration_text(scale(row.host_wall_ns)),
            as_prose(bound_term(row.bound).label.lower()),
        ]
        for depth, row in tree[:30]
    ]
    if rows:
        yield f"### Phases ({scale.label})"
        yield from as_table(("phase", "GPU total>", "GPU self>", "host>", "bound"), rows, len(tree))


def _kernels(report: Document, scale: Scale) -> Iterable[str]:
    kernels = kernels_by_name(report)
    rows = [
        [
            as_code(row.name),
            duration_text(scale(row.total_ns)),
            share_text(row.share),
            scale.count(row.count),
            duration_text(row.mean_ns),
            as_prose(bound_term(row.bound).label),
            share_text(row.efficiency) + (" (unsaturated)" if row.unsaturated else ""),
        ]
        for row in kernels[:_TOP]
    ]
    if rows:
        yield f"### Kernels ({scale.label})"
        yield from as_table(
            ("kernel", "time>", "share>", "count>", "mean>", "bound", "efficiency>"), rows, len(kernels)
        )


def _precision(report: Document, scale: Scale) -> Iterable[str]:
    formats = formats_of(report)
    rows = [
        [as_code(row.dtype), row.unit, row.work, duration_text(scale(row.ns)), share_text(row.share), flop_cell(row, scale), scale.count(row.count)]
        for row in formats[:_TOP]
    ]  # fmt: skip
    lines = precision_lines(report, scale)
    if rows or lines:
        yield "### " + ": ".join(filter(None, ("Precision", note_of(report))))
        heads = ("type", "unit", "work", f"time {scale.label}>", "share>", "FLOP>", "launches>")
        yield from as_table(heads, rows, len(formats))
    yield from map(as_prose, lines)
    accidents = [
        [as_code(row.where or row.phase), duration_text(scale(row.ns)), scale.count(row.count), as_prose(row.message)]
        for row in accidents_of(report)[:_TOP]
    ]  # fmt: skip
    columns = ("where", f"GPU time {scale.label}>", "count>", "fp32 by accident")
    yield from as_table(columns, accidents, len(accidents_of(report)))


def _numerics(report: Document, scale: Scale) -> Iterable[str]:
    for section in numerics_sections(report):
        yield f"### Numerics: {as_prose(section.note)}"
        yield from map(as_prose, section.lines)
        rows = [
            [as_code(row.label), row.dtype, row.zeros, row.lost, row.norm, as_prose(row.range), as_code(row.histogram)]
            for row in section.first[:_TOP]
        ]  # fmt: skip
        heads = ("tensor", "type", "zero>", "fp16 loses>", "norm>", "range>", section.scale)
        yield from as_table(heads, rows, len(section.rows))


def _operators(report: Document, scale: Scale) -> Iterable[str]:
    if report.kernels or not report.operators:
        return
    ordered = operators_by_name(report)
    rows = [
        [as_code(name), duration_text(self_ns), duration_text(total_ns), count_text(count)]
        for name, self_ns, total_ns, count in ordered[:_TOP]
    ]
    yield "### Operators (host time: the file has no kernels)"
    yield from as_table(("operator", "self>", "total>", "count>"), rows, len(ordered))


def _idle(report: Document, scale: Scale) -> Iterable[str]:
    causes = sorted(((ns, name) for name, ns in report.idle.by_cause.items() if ns), reverse=True)
    if causes:
        yield f"### Idle: {duration_text(scale(report.idle.total_ns))} {recorded_label(report)}"
        rows = [
            [as_prose(cause_term(name).label), duration_text(scale(ns)), as_prose(cause_term(name).meaning),
             as_code(filled_by(report.idle, name, scale) or None)]
            for ns, name in causes
        ]  # fmt: skip
        yield from as_table(("cause", f"time {scale.label}>", "meaning", "mostly in"), rows)


def _syncs(report: Document, scale: Scale) -> Iterable[str]:
    ordered = syncs_by_cost(report)
    rows = [
        [as_code(where_text(row.api, row.operator)), as_code(row.where or row.phase), scale.count(row.count),
         duration_text(scale(row.blocked_ns)), duration_text(scale(row.cost_ns))]
        for row in ordered[:10]
    ]  # fmt: skip
    if rows:
        yield f"### Synchronisation ({recorded_label(report)})"
        yield from as_table(("call", "where", "count>", "blocked>", "cost>"), rows, len(ordered))


def _memory(report: Document, scale: Scale) -> Iterable[str]:
    memory = report.memory
    if not memory:
        return
    peak, reserved = bytes_text(memory.peak_allocated_bytes), bytes_text(memory.peak_reserved_bytes)
    yield f"### Memory: peak {peak} allocated, {reserved} reserved"
    held = [(where_text(row.category, row.where), row.bytes, row.count) for row in memory.at_peak]
    kept = [(where_text(row.where), row.bytes, row.count) for row in memory.never_freed]
    for title, places in (("at the peak", held), ("still allocated at the end", kept)):
        rows = [[as_code(name), bytes_text(size), count_text(count)] for name, size, count in places[:10]]
        yield from as_table((title, "size>", "blocks>"), rows, len(places))
    for row in memory.oom[:3]:
        yield f"**Out of memory** at {as_code(row.where)}: {as_prose(row.explanation)}"
    if found := memory_findings(report):
        yield "\n".join(f"- **{finding.severity}**: {as_prose(finding.message)}" for finding in found)


def _ranks(report: Document, scale: Scale) -> Iterable[str]:
    lines = rank_lines(report)
    rows = [
        [line.name, duration_text(line.step_ns), duration_text(line.late_ns), "straggler" if line.straggler else ""]
        for line in lines[:32]
    ]  # fmt: skip
    if len(rows) > 1:
        yield "### Ranks"
        yield from as_table(("rank>", "step>", "late>", ""), rows, len(lines))


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


def as_prose(value: str | None) -> str:
    """Text as text: nothing in it formats, links, mentions or is HTML."""
    text = printable(value or "")
    text = text if len(text) <= 500 else f"{text[:500]}…"
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("@", "@\u200b").replace("://", ":\u200b//")
    return _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", text))


def as_code(value: str | None, limit: int = _NAMES) -> str:
    """A name as a code span, in which Markdown means nothing; safe in a table."""
    text = printable(value or "").strip()
    if not text:
        return "–"
    text = text if len(text) <= limit else f"{text[: limit - 13]}…{text[-12:]}"
    return f"`{text.replace('`', chr(0x2019)).replace('|', chr(0xA6))}`"
