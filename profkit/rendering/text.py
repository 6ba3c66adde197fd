"""The report for a terminal."""

from __future__ import annotations

from rich.console import JustifyMethod
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from profkit.errors import printable
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
    launch_parts,
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
from profkit.rendering.sentences.first_action import first_action
from profkit.rendering.sentences.fit import change_label
from profkit.rendering.sentences.labels import bound_term, cause_term, share_term
from profkit.rendering.terminal import Terminal, short
from profkit.units import bytes_text, count_text, duration_text, noun_text

__all__ = ["render_text"]

_NAMES = 60
_TOP = 12
_FORMATS = 8
_WIDE = 76
_SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def render_text(report: Document, *, width: int = 100, color: bool = False) -> str:
    """The report as lines of at most ``width`` columns; control characters in names are shown as ``?``.

    Args:
        report: What to tell.
        width: Columns of the terminal.
        color: Whether to use ANSI colours.
    """
    console = Terminal(width, color=color)
    scale = scale_of(report)
    for write in (
        _verdict,
        _health,
        _phases,
        _kernels,
        _precision,
        _numerics,
        _operators,
        _idle,
        _syncs,
        _memory,
        _ranks,
        _advice,
    ):
        write(console, report, scale)
    return console.printed()


def _verdict(console: Terminal, report: Document, scale: Scale) -> None:
    verdict = report.verdict
    console.print(Text(_clean(verdict.sentence, None), style="bold"))
    console.print(
        Text(_clean(where_text(*facts(report), confidence_text(verdict.confidence)), None), style="dim")
    )
    for line in filter(None, [what_to_record(verdict), *verdict.caveats]):
        console.print(Text(_clean(line, None), style="yellow"))
    shares, own_scale = headline_of(report)
    parts = parts_of(shares)
    if not parts:
        return
    console.print()
    bar = max(6, min(46, console.width - 40 - len(scale.label)))
    table = console.table(("", "left"), ("", "left"), ("", "right"), (f"time {scale.label}", "right"))
    table.show_header = False
    for name, ns, fraction in parts:
        term = share_term(name)
        filled = max(1, round(fraction * bar))
        table.add_row(
            Text(_clean(term.label)),
            Text("█" * filled, style=term.terminal) + Text("·" * (bar - filled), style="dim"),
            share_text(fraction),
            Text(f"{duration_text(own_scale(ns))} {scale.label}"),
        )
    console.print(Padding(table, (0, 0, 0, 2)))
    for line in filter(None, (recorded_beside(report), launch_parts(report))):
        console.print(Text(f"  {_clean(line, None)}", style="dim"))


def _health(console: Terminal, report: Document, scale: Scale) -> None:
    found = findings_by_weight(report)
    if not found:
        return
    console.heading("Trace health", health_note(report))
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for row in found:
        severity = Text(row.severity, style=_SEVERITY_STYLES[row.severity])
        table.add_row(severity, Text(_clean(row.message, None)))
    console.print(Padding(table, (0, 0, 0, 2)))


def _phases(console: Terminal, report: Document, scale: Scale) -> None:
    tree = phase_tree(report.phases)
    if not tree:
        return
    if not any(row.gpu_inclusive_ns for row in report.phases) and not report.kernels:
        console.heading("Phases", f"host time {scale.label}: the file has no device work")
        table = console.table(("phase", "left"), ("host", "right"))
        for depth, row in tree[:40]:
            name = Text("  " * min(depth, 8) + _clean(row.name))
            table.add_row(name, duration_text(scale(row.host_wall_ns)))
        console.print_table(table, len(tree) - 40, "phase")
        return
    console.heading("Phases", f"GPU time {scale.label}")
    table = console.table(
        ("phase", "left"), ("total", "right"), ("self", "right"), ("host", "right"), ("bound", "left")
    )
    for depth, row in tree[:40]:
        bound = bound_term(row.bound)
        table.add_row(
            Text("  " * min(depth, 8) + _clean(row.name)),
            duration_text(scale(row.gpu_inclusive_ns)),
            duration_text(scale(row.gpu_exclusive_ns)),
            duration_text(scale(row.host_wall_ns)),
            Text(_clean(bound.label.lower()), style=bound.terminal),
        )
    console.print_table(table, len(tree) - 40, "phase")


def _kernels(console: Terminal, report: Document, scale: Scale) -> None:
    rows = kernels_by_name(report)
    if not rows:
        return
    console.heading("Kernels", f"{count_text(len(rows))} by name, time {scale.label}")
    columns: list[tuple[str, JustifyMethod]] = [
        ("kernel", "left"),
        ("time", "right"),
        ("share", "right"),
        ("bound", "left"),
        ("efficiency", "right"),
    ]
    if console.width >= _WIDE:
        columns[3:3] = [("count", "right"), ("mean", "right")]
    table = console.table(*columns)
    for row in rows[:_TOP]:
        bound = bound_term(row.bound)
        cells: dict[str, str | Text] = {
            "kernel": Text(_clean(row.name)),
            "time": duration_text(scale(row.total_ns)),
            "share": share_text(row.share),
            "count": scale.count(row.count),
            "mean": duration_text(row.mean_ns),
            "bound": Text(_clean(bound.label), style=bound.terminal),
            "efficiency": share_text(row.efficiency) + (" !" if row.unsaturated else ""),
        }
        table.add_row(*(cells[name] for name, _ in columns))
    console.print_table(table, len(rows) - _TOP, "kernel")
    if any(row.unsaturated for row in rows[:_TOP]):
        note = "  ! unsaturated: under 40 % of its bound, with idle units. The kernel is slow, not the GPU."
        console.print(Text(note, style="dim"))


def _precision(console: Terminal, report: Document, scale: Scale) -> None:
    formats, lines = formats_of(report), precision_lines(report, scale)
    if not formats and not lines:
        return
    console.heading("Precision", note_of(report))
    table = console.table(
        ("type", "left"), ("unit", "left"), ("work", "left"), (f"time {scale.label}", "right"), ("share", "right"),
        ("FLOP", "right"), ("launches", "right"),
    )  # fmt: skip
    for row in formats[:_FORMATS]:
        table.add_row(
            Text(_clean(row.dtype)),
            row.unit,
            row.work,
            duration_text(scale(row.ns)),
            share_text(row.share),
            flop_cell(row, scale),
            scale.count(row.count),
        )
    if formats:
        console.print_table(table, len(formats) - _FORMATS, "format")
    for line in lines:
        console.print(Padding(Text(_clean(line, None)), (0, 0, 0, 2)))
    accidents = accidents_of(report)
    for accident in accidents[:_FORMATS]:
        price = duration_text(scale(accident.ns)) if accident.ns else None
        place = where_text(accident.where or accident.phase, price, f"{scale.count(accident.count)} ×")
        console.print(
            Padding(Text(_clean(f"{place}: {accident.message}", None), style="yellow"), (0, 0, 0, 2))
        )
    if len(accidents) > _FORMATS:
        console.print(Text(f"  and {noun_text(len(accidents) - _FORMATS, 'accident')} more", style="dim"))


def _numerics(console: Terminal, report: Document, scale: Scale) -> None:
    for section in numerics_sections(report):
        console.heading("Numerics", section.note)
        for line in section.lines:
            console.print(Padding(Text(_clean(line, None)), (0, 0, 0, 2)))
        heads = ("zero", "fp16 loses", "norm", "range")
        table = console.table(("tensor", "left"), ("type", "left"), *((head, "right") for head in heads))
        if console.width >= _WIDE:
            table.add_column(section.scale, no_wrap=True)
        for row in section.first[:_TOP]:
            cells = [_clean(row.label), _clean(row.dtype), row.zeros, row.lost, row.norm, row.range]
            table.add_row(*map(Text, [*cells, row.histogram][: len(table.columns)]))
        console.print_table(table, len(section.rows) - _TOP, "tensor")


def _operators(console: Terminal, report: Document, scale: Scale) -> None:
    if report.kernels or not report.operators:
        return
    console.heading("Operators", "host time in all, since the file has no kernels")
    rows = operators_by_name(report)
    table = console.table(("operator", "left"), ("self", "right"), ("total", "right"), ("count", "right"))
    for name, self_ns, total_ns, count in rows[:_TOP]:
        table.add_row(Text(_clean(name)), duration_text(self_ns), duration_text(total_ns), count_text(count))
    console.print_table(table, len(rows) - _TOP, "operator")


def _idle(console: Terminal, report: Document, scale: Scale) -> None:
    causes = sorted(((ns, name) for name, ns in report.idle.by_cause.items() if ns), reverse=True)
    if not causes:
        return
    console.heading("Idle", f"{duration_text(scale(report.idle.total_ns))} {recorded_label(report)}")
    for ns, name in causes:
        term = cause_term(name)
        line = Text(f"  {duration_text(scale(ns)):>8}  ")
        line.append(f"{_clean(term.label):<18}", style=term.terminal)
        line.append(f"  {_clean(filled_by(report.idle, name, scale) or term.meaning, None)}", style="dim")
        console.print(line, no_wrap=True, overflow="ellipsis")


def _syncs(console: Terminal, report: Document, scale: Scale) -> None:
    rows = syncs_by_cost(report)
    if not rows:
        return
    console.heading("Synchronisation", f"{recorded_label(report)}; cost is the idle time that it explains")
    table = console.table(
        ("call", "left"), ("where", "left"), ("count", "right"), ("blocked", "right"), ("cost", "right")
    )
    for row in rows[:8]:
        table.add_row(
            Text(_clean(where_text(row.api, row.operator))),
            Text(_clean(row.where or row.phase or "–")),
            scale.count(row.count),
            duration_text(scale(row.blocked_ns)),
            duration_text(scale(row.cost_ns)),
        )
    console.print_table(table, len(rows) - 8, "call")


def _memory(console: Terminal, report: Document, scale: Scale) -> None:
    memory = report.memory
    if not memory:
        return
    peak = f"peak {bytes_text(memory.peak_allocated_bytes)} allocated, {bytes_text(memory.peak_reserved_bytes)} reserved"
    console.heading("Memory", peak)
    held = [(row.category, row.where, row.bytes, row.count) for row in memory.at_peak]
    kept = [(None, row.where, row.bytes, row.count) for row in memory.never_freed]
    for title, rows in (("at the peak", held), ("still allocated at the end", kept)):
        if not rows:
            continue
        table = console.table((title, "left"), ("size", "right"), ("blocks", "right"))
        for category, where, size, count in rows[:6]:
            name = where_text(category, where) or "unknown"
            table.add_row(Text(_clean(name)), bytes_text(size), count_text(count))
        console.print_table(table, len(rows) - 6, "call site")
    if report.fit:
        changes = console.table(("with one change", "left"), ("peak", "right"), ("step", "right"))
        for change in report.fit:
            after, step = change.peak_bytes.likely, change.step_ns.likely
            changes.add_row(Text(_clean(change_label(change.change))), bytes_text(after), duration_text(step))
        console.print_table(changes, 0, "change")
    for row in memory.oom[:3]:
        console.print(Text(f"  {_clean(where_text('out of memory', row.where), None)}", style="bold red"))
        console.print(Padding(Text(_clean(row.explanation, None)), (0, 0, 0, 2)))
    for finding in memory_findings(report):
        console.print(Padding(Text(_clean(finding.message, None)), (0, 0, 0, 2)))


def _ranks(console: Terminal, report: Document, scale: Scale) -> None:
    if len(report.ranks) < 2:
        return
    console.heading("Ranks", "")
    heads = ("rank", "step", "late", "waits per step", "causes per step")
    table = console.table(*((head, "right") for head in heads), ("", "left"))
    lines = rank_lines(report)
    shown = lines if len(lines) <= 16 else [*lines[:15], lines[-1]]
    for line in shown:
        times = (line.step_ns, line.late_ns, line.waits_ns, line.causes_ns)
        note = Text("straggler" if line.straggler else "", style="bold red")
        table.add_row(line.name, *map(duration_text, times), note)
    console.print_table(table, len(lines) - len(shown), "rank")


def _advice(console: Terminal, report: Document, scale: Scale) -> None:
    nothing = no_advice(report)
    if nothing:
        console.heading("What to do", "")
        console.print(Padding(Text(nothing), (0, 0, 0, 2)))
    if not report.advice:
        return
    console.heading("What to do", "best first")
    if action := first_action(report):
        console.print(Padding(Text(f"First: {_clean(action, None)}"), (0, 0, 0, 2)))
    if len(report.advice) > 1:
        _advice_at_a_glance(console, report)
    for number, row in enumerate(report.advice, 1):
        title = Text(f"  {number}. ")
        title.append(_clean(row.title, None), style="bold")
        gain = [text for text in [gain_text(report, row)] if text]
        if row.speedup:
            gain.append(
                f"{row.speedup.likely:.2f}x likely ({row.speedup.low:.2f}x to {row.speedup.high:.2f}x)"
            )
        console.print(title)
        for line, style in (
            (where_text(*gain, f"confidence: {row.confidence}"), "green"),
            (row.why, ""),
            (row.action, ""),
        ):
            if line:
                console.print(Padding(Text(_clean(line, None), style=style), (0, 0, 0, 5)))
        for code in code_lines(row.code):
            # Whole, however narrow the terminal: what is pasted from here must still be the program's line.
            console.print(Text(f"         {code}", style="cyan"), soft_wrap=True)


def _advice_at_a_glance(console: Terminal, report: Document) -> None:
    """One line for each advice, before the details."""
    heads = ("speed-up", "saves", "confidence")
    table = console.table(("change", "left"), *((head, "right") for head in heads))
    for number, row in enumerate(report.advice, 1):
        table.add_row(
            f"{number}. {_clean(row.title, None)}",
            f"{row.speedup.likely:.2f}x" if row.speedup else "–",
            duration_text(row.saving_ns) if row.saving_ns else "–",
            row.confidence,
        )
    console.print_table(table)
    console.print()


def _clean(value: str | None, limit: int | None = _NAMES) -> str:
    """Text from a file as one line without control characters, cut in its middle."""
    text = "–" if value is None else value
    if limit is not None:
        return short(text, limit)
    text = printable(text)
    return text if len(text) <= 500 else f"{text[:500]}…"
