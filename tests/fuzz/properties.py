"""What must hold for every input, however broken: see `check`."""

from __future__ import annotations

import gzip
import json
import resource
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema

import profkit
from profkit.api import export_timeline
from profkit.api.comparing import load
from profkit.errors import ProfkitError
from profkit.readers import read
from profkit.rendering.schema import report_schema
from tests.fuzz.damage import Made

MOST_SECONDS = 10.0
MOST_BYTES = 2 << 30

_LAYOUT = "\n\r\t\u200b"
"""Ends of lines, tabs (in quotes, in CSV), and the space of no width that keeps Markdown from naming people."""
_USED_EVERY = 10
_TABLES = (
    "kernels", "phases", "steps", "devices", "operators", "ranges", "syncs", "gaps", "communication", "ranks", "advice",
)  # fmt: skip
_VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"})


def check(made: Made, folder: Path, *, thorough: bool) -> str | None:
    """Analyse an input and check every property.

    Args:
        made: The input.
        folder: Where it is written; the same file again and again.
        thorough: Also make every other kind of report, and parse the page; and of every tenth such input export the
            timeline, and read the report back and compare it.

    Returns:
        The message of the error that refused it; None when it was analysed.

    Raises:
        AssertionError: A property is broken. Any other exception than `ProfkitError` is a bug as well.
    """
    files, refusal = _written(made, folder), ""
    try:
        with _limits():
            report = profkit.analyze(files)
            text = report.render("json")
    except ProfkitError as error:
        refusal = str(error)
    assert refusal.isprintable(), f"a message that no terminal can show: {refusal!r}"
    if refusal:
        return refusal
    document = json.loads(text, parse_constant=_no_constant)
    _validator().validate(document)
    _check_shares(document)
    _check_counts(document, _kernels_at_most(made))
    if thorough:
        _check_renderings(report)
        if zlib.crc32(made.data) % _USED_EVERY == 0:
            _check_uses(report, text, files)
    return None


def check_reading(made: Made, folder: Path) -> None:
    """Read an input, and no more: quicker, where the properties of reports need not be checked.

    Raises:
        AssertionError: It took too long, too much memory, or was refused with more than a line.
    """
    for file in _written(made, folder):
        refusal = ""
        try:
            with _limits():
                read(file)
        except ProfkitError as error:
            refusal = str(error)
        assert refusal.isprintable(), f"a message that no terminal can show: {refusal!r}"


@contextmanager
def _limits() -> Iterator[None]:
    started = time.process_time()  # a clock on the wall tells more of the other programs on a busy machine
    before = _most_held()  # the peak of the whole process: whatever test ran in it before
    try:
        yield
    finally:
        took = time.process_time() - started
        assert took < MOST_SECONDS, f"it took {took:.1f} s"
        used = _most_held() - before
        assert used < MOST_BYTES, f"it took {used >> 20} MiB"


def _most_held() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _written(made: Made, folder: Path) -> list[Path]:
    files = [folder / f"input{made.suffix}"]
    files[0].write_bytes(made.data)
    if made.beside:
        files.append(folder / f"beside{made.beside.suffix}")
        files[1].write_bytes(made.beside.data)
    return files


def _kernels_at_most(made: Made) -> int | None:
    counts = [each.kernels_at_most for each in (made, made.beside) if each]
    return None if None in counts else sum(count for count in counts if count is not None)


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


@cache
def _validator() -> Any:
    """The schema, checked by the compiled library where it is installed: a quarter of the time of a long run."""
    with suppress(ImportError):
        return import_module("jsonschema_rs").validator_for(report_schema())
    return jsonschema.Draft202012Validator(report_schema())


def _check_shares(document: Any) -> None:
    window, verdict = document["window"], document["verdict"]
    assert sum(verdict["shares"].values()) == window["device_ns"]
    assert all(ns >= 0 for ns in verdict["shares"].values())
    assert 0 <= verdict["share"] <= 1
    for device in document["devices"]:
        assert sum(device["shares"].values()) == device["window_ns"], "a device's shares do not add up"
        assert all(ns >= 0 for ns in device["shares"].values())
        assert 0 <= device["busy_ns"] <= device["window_ns"]
    assert sum(device["window_ns"] for device in document["devices"]) == window["device_ns"]
    for step in window["steps"]:
        assert sum(step["shares"].values()) == step["device_ns"], "a step's shares do not add up"
    if window["steps"] and not document["inputs"][1:]:
        assert sum(s["device_ns"] for s in window["steps"] if s["kept"]) <= window["device_ns"]
    assert sum(document["idle"]["by_cause"].values()) == document["idle"]["total_ns"]
    assert (
        sum(phase["gpu_exclusive_ns"] for phase in document["phases"])
        <= window["device_ns"] * 1000 + document["totals"]["kernel_sum_ns"] + document["totals"]["copy_ns"]
    )


def _check_counts(document: Any, kernels_at_most: int | None) -> None:
    totals = document["totals"]
    counted = totals["kernel_count"] or 0  # null where graphs hide their kernels
    assert sum(row["count"] for row in totals["kernels"]) == counted or totals["kernel_count"] is None
    assert sum(row["total_ns"] for row in totals["kernels"]) == totals["kernel_sum_ns"]
    assert totals["kernel_union_ns"] <= min(totals["kernel_sum_ns"], totals["gpu_busy_ns"])
    assert totals["communication_exposed_ns"] <= totals["communication_sum_ns"]
    assert sum(row["count"] for row in document["kernels"]) <= sum(row["count"] for row in totals["kernels"])
    assert sum(row["total_ns"] for row in document["kernels"]) <= totals["kernel_sum_ns"], "counted twice"
    if kernels_at_most is not None:
        assert counted <= kernels_at_most, "more kernels than the file holds"
    memory = document["memory"]
    for device in memory["devices"] if memory else []:
        for peak in ("peak_allocated_bytes", "peak_reserved_bytes"):
            assert device[peak] is None or device[peak] >= 0


def _check_renderings(report: profkit.Report) -> None:
    page = _Page()
    page.feed(report.render("html"))
    page.close()
    assert not page.open, f"never closed: {page.open}"
    for format_ in ("text", "md", "csv"):
        text = report.render(format_)
        odd = {c for c in text if not c.isprintable() and c not in _LAYOUT}
        assert not odd, f"{format_} holds control characters {odd}"
        text.encode()


def _check_uses(report: profkit.Report, text: str, files: list[Path]) -> None:
    """What else is made of an input that can be analysed: tables, a timeline, a report that is read back."""
    for table in _TABLES:
        assert getattr(report, table).shape[0] == len(_rows_of(report, table)), table
    with suppress(ProfkitError):  # of two files, one may be no recording
        json.loads(gzip.decompress(export_timeline(files)), parse_constant=_no_constant)
    saved = files[0].with_name("saved.json")
    saved.write_text(text, encoding="utf-8")
    for format_ in ("json", "text", "md", "html"):
        compared = profkit.compare(saved, saved).render(format_)
        compared.encode()
    assert load(saved).render("text") == report.render("text")


def _rows_of(report: profkit.Report, table: str) -> list[Any]:
    inside = {"steps": report.document.window, "gaps": report.document.idle}
    rows: list[Any] = getattr(inside.get(table, report.document), table)
    return rows


class _Page(HTMLParser):
    """A page whose tags close in the order in which they were opened, and whose scripts are those of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in <{tag}>"
        assert not any(name.startswith("on") for name in names), f"a handler in <{tag}>"
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        opened = self.open.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"
