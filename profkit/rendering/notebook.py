"""A report or a comparison as the output of a notebook's cell: a few kB without scripts; the page is a link.

Notebooks are saved with their outputs, so a cell holds a summary. Styles stand on the elements: a style sheet would
hold for the whole notebook.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from profkit.rendering.comparison_document import ComparisonDocument
from profkit.rendering.comparison_tables import Section, sections_of, warning_text
from profkit.rendering.digest import (
    confidence_text,
    facts,
    findings_by_weight,
    gain_text,
    headline_of,
    kernels_by_name,
    no_advice,
    parts_of,
    phase_tree,
    scale_of,
    share_text,
    what_to_record,
    where_text,
)
from profkit.rendering.document import Document
from profkit.rendering.page_cells import clip, tone
from profkit.rendering.sentences.first_action import first_action
from profkit.rendering.sentences.labels import bound_term, share_term
from profkit.units import bytes_text, count_text, duration_text, noun_text

__all__ = ["comparison_cell", "report_cell"]

_ROWS: Final = 8
_VARIABLE: Final = re.compile(r"(--[\w-]+): light-dark\((#\w+),")
_TONE: Final = re.compile(r"\.(tone-[\w-]+)(?=[^{}]*\{ --tone: var\((--[\w-]+)\))")
_SOFT: Final = "opacity:.7"


def report_cell(report: Document, page: Path | None = None) -> str:
    """The verdict, its bar, the first advice, and the largest phases and kernels.

    Args:
        report: What to tell.
        page: Where the whole page was saved; None where it was not.
    """
    return _cell(_report_parts(report), page, "report")


def comparison_cell(comparison: ComparisonDocument, page: Path | None = None) -> str:
    """What changed, and the tables of the comparison; arguments as for `report_cell`."""
    return _cell(_comparison_parts(comparison), page, "comparison")


def _cell(parts: Iterable[Markup], page: Path | None, name: str) -> str:
    body = Markup("\n").join([*parts, _link(page, name)])
    cell = Markup('<div style="max-width:60em;line-height:1.4">{}</div>').format(body)
    return cell.encode("utf-8", "replace").decode("utf-8")


def _report_parts(report: Document) -> Iterator[Markup]:
    verdict = report.verdict
    yield _line(verdict.sentence, "font-weight:600;font-size:1.1em")
    yield _line(where_text(*facts(report), confidence_text(verdict.confidence)), _SOFT)
    for line in filter(None, [what_to_record(verdict), *verdict.caveats]):
        yield _line(line)
    yield from _bar(report)
    for finding in findings_by_weight(report):
        if finding.severity != "info":
            yield _line(f"{finding.severity}: {finding.message}")
    yield from _advice(report)
    for section in (_phases(report), _kernels(report), _memory(report)):
        if section.rows:
            yield _table(section)


def _comparison_parts(comparison: ComparisonDocument) -> Iterator[Markup]:
    yield _line(comparison.sentence, "font-weight:600;font-size:1.1em")
    for row in comparison.warnings:
        yield _line(warning_text(row))
    for section in sections_of(comparison):
        yield _table(section)


def _line(text: str, style: str = "") -> Markup:
    return Markup('<div style="margin:.3em 0;{}"><bdi>{}</bdi></div>').format(style, clip(text, 600))


def _bar(report: Document) -> Iterator[Markup]:
    """The shares as one bar with its legend below it, in the same order."""
    shares, scale = headline_of(report)
    parts = parts_of(shares)
    if not parts:
        return
    yield Markup(
        '<div style="display:flex;height:1.2em;margin:.5em 0 .2em" role="img" aria-label="{}">{}</div>'
    ).format(
        ", ".join(f"{share_term(name).label} {share_text(fraction)}" for name, _, fraction in parts),
        Markup("").join(
            Markup('<span title="{}" style="width:{}%;background:{}"></span>').format(
                share_term(name).label, round(100 * fraction, 2), _color(name)
            )
            for name, _, fraction in parts
        ),
    )
    yield Markup('<div style="margin-bottom:.6em">{}</div>').format(
        Markup(" ").join(
            Markup(
                '<span style="white-space:nowrap;margin-right:1em"><span style="color:{}">■</span> {} {} <span style="{}">{} {}</span></span>'
            ).format(
                _color(name),
                share_term(name).label,
                share_text(fraction),
                _SOFT,
                duration_text(scale(ns)),
                scale.label,
            )
            for name, ns, fraction in parts
        )
    )


def _advice(report: Document) -> Iterator[Markup]:
    action = first_action(report)
    if action:
        yield _line(f"What to do first: {action}", "font-weight:600")
        if report.advice:
            yield _line(f"then {noun_text(len(report.advice), 'change')} in report.advice", _SOFT)
        return
    if not report.advice:
        nothing = no_advice(report)
        if nothing:
            yield _line(nothing)
        return
    first = report.advice[0]
    gain = gain_text(report, first)
    yield _line(f"What to do first: {first.title}" + (f": {gain}" if gain else ""), "font-weight:600")
    yield _line(first.action)
    if len(report.advice) > 1:
        yield _line(f"{count_text(len(report.advice) - 1)} more in report.advice", _SOFT)


def _phases(report: Document) -> Section:
    scale, tree = scale_of(report), phase_tree(report.phases)
    busy = any(row.gpu_inclusive_ns for row in report.phases)
    rows = [
        (
            "\u2003" * min(depth, 4) + row.name,
            duration_text(scale(row.host_wall_ns)),
            *(
                (duration_text(scale(row.gpu_inclusive_ns)), bound_term(row.bound).label.lower())
                if busy
                else ()
            ),
        )
        for depth, row in tree[:_ROWS]
    ]
    headers = ("phase", "host>", *(("GPU>", "bound") if busy else ()))
    return Section("Phases", scale.label, headers, rows, len(tree) - len(rows))


def _kernels(report: Document) -> Section:
    scale, kernels = scale_of(report), kernels_by_name(report)
    rows = [
        (
            row.name,
            duration_text(scale(row.total_ns)),
            share_text(row.share),
            scale.count(row.count),
            bound_term(row.bound).label.lower(),
            share_text(row.efficiency),
        )
        for row in kernels[:_ROWS]
    ]
    headers = ("kernel", "time>", "share>", "count>", "bound", "efficiency>")
    return Section("Kernels", scale.label, headers, rows, len(kernels) - len(rows))


def _memory(report: Document) -> Section:
    held = report.memory.at_peak if report.memory else ()
    rows = [
        (where_text(row.category, row.where) or "unknown", bytes_text(row.bytes), count_text(row.count))
        for row in held[:_ROWS]
    ]
    return Section("Memory at its peak", "", ("held by", "size>", "blocks>"), rows, len(held) - len(rows))


def _table(section: Section) -> Markup:
    heading = Markup("<tr>{}</tr>").format(_cells("th", section.headers, section.headers))
    rows = Markup("\n").join(
        Markup("<tr>{}</tr>").format(_cells("td", row, section.headers)) for row in section.rows
    )
    more = f"and {count_text(section.left_out)} more" if section.left_out > 0 else ""
    return Markup(
        '<table style="margin:.6em 0"><caption style="text-align:left;font-weight:600">{} <span style="{};font-weight:400">{}</span></caption>'
        "<thead>{}</thead><tbody>{}</tbody></table>{}"
    ).format(section.title, _SOFT, section.note, heading, rows, _line(more, _SOFT) if more else "")


def _cells(tag: str, texts: Sequence[str], headers: Sequence[str]) -> Markup:
    return Markup("").join(
        Markup('<{} style="text-align:{};white-space:nowrap"><bdi>{}</bdi></{}>').format(
            Markup(tag),
            "right" if header.endswith(">") else "left",
            clip(text.removesuffix(">") if tag == "th" else text, 60),
            Markup(tag),
        )
        for text, header in zip(texts, headers, strict=True)
    )


def _link(page: Path | None, name: str) -> Markup:
    """The saved page, from the notebook's folder; else how to save it."""
    if page is None:
        return Markup('<div style="{}">The whole page: <code>{}.save("{}.html")</code></div>').format(
            _SOFT, name, name
        )
    place = os.path.relpath(page)  # JupyterLab takes "download" out of links, which then only open the page
    return Markup(
        '<div><a href="{}" target="_blank">Open the page</a> <span style="{}"><code>{}</code></span></div>'
    ).format(quote(place.replace(os.sep, "/")), _SOFT, place)


def _color(name: str) -> str:
    return _colors().get(tone(name), "#7f858f")


@cache
def _colors() -> dict[str, str]:
    """The colours of the page's tones on white, which also stand out on black."""
    sheet = files("profkit.rendering").joinpath("assets", "report.css").read_text("utf-8")
    variables = dict(_VARIABLE.findall(sheet))
    return {name: variables[variable] for name, variable in _TONE.findall(sheet) if variable in variables}
