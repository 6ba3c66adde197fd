"""Real recordings for comparisons: as they are, resampled, and with slower kernels."""

from collections import Counter
from dataclasses import replace as changed
from functools import cache

import numpy as np

import profkit
from profkit.comparison import compare_reports
from profkit.comparison.side import apportioned, kept_steps
from profkit.model.report_time import PartRow
from profkit.model.rows import replace
from profkit.readers import read
from profkit.rendering.comparison_document import comparison_document
from profkit.rendering.document_of import document_of
from profkit.report.assembly import summarise
from tests.shared import DATA

QUEUED_NS = 10_000
"""A kernel that starts within this after the one before it was waiting for it."""


def compared(before, after):
    """What a comparison of reports says, with its sentences."""
    sides = ([document_of(report) for report in side] for side in (before, after))
    return comparison_document(compare_reports(*sides))


@cache
def recorded(name, folder="nsys"):
    suffix = "sqlite.gz" if folder == "nsys" else "json.gz"
    return profkit.analyze(DATA / folder / f"{name}.{suffix}").document


def with_slower_kernels(name, factor):
    """The report of a recording whose kernels all take longer; what is queued behind them starts later."""
    trace = read(DATA / "nsys" / f"{name}.sqlite.gz")
    operations = trace.operations
    start, end = operations.start_ns.copy(), operations.end_ns.copy()
    before, now = 0, 0
    for row in np.argsort(operations.start_ns, kind="stable").tolist():
        length = round(int(operations.end_ns[row] - operations.start_ns[row]) * factor)
        gap = int(operations.start_ns[row]) - before
        first = now + gap if gap <= QUEUED_NS else max(int(operations.start_ns[row]), now)
        before = max(before, int(operations.end_ns[row]))
        start[row], end[row] = first, first + length
        now = max(now, first + length)
    slower = changed(trace, operations=changed(operations, start_ns=start, end_ns=end))
    return document_of(summarise([slower]))


def resampled(report, count, random, *, factor=1.0, run_spread=0.0):
    """A recording of as many steps drawn from those of a real one.

    Steps differ as the real ones do: their busy and idle times are the real means, spread by the real standard
    deviations. ``factor`` makes every step longer; ``run_spread`` is what whole recordings differ by.
    """
    devices = len(report.devices)
    real = [
        (step.gpu_busy_ns / devices, (step.device_ns - step.gpu_busy_ns) / devices)
        for step in kept_steps(report)
    ]
    mean, spread = np.mean(real, axis=0), np.std(real, axis=0, ddof=1)
    run = 1 + run_spread * random.standard_normal()
    drawn = np.maximum(mean + spread * random.standard_normal((count, 2)), 0) * factor * run
    return of_steps(report, drawn.round().astype(np.int64).tolist())


def of_steps(report, times):
    """A report of one device whose steps have these busy and idle times."""
    template = kept_steps(report)[0]
    none = dict.fromkeys(template.shares, 0)
    steps = [
        replace(
            template, device_ns=busy + idle, gpu_busy_ns=busy, excess=None,
            shares={**none, "compute": busy, "launch": idle},
        )
        for busy, idle in times
    ]  # fmt: skip
    busy, idle = (sum(column) for column in zip(*times, strict=True))
    waits = Counter()
    for row in report.window.parts:
        if row.cause:
            waits[row.cause] += row.ns
    cut = apportioned(waits, idle) if waits else {"unknown": idle}
    parts = [PartRow(share="compute", cause=None, family="gemm", kernel=None, phase=None, ns=busy)]
    parts += [
        PartRow(share="launch", cause=cause, family=None, kernel=None, phase=None, ns=ns)
        for cause, ns in cut.items()
    ]
    return replace(
        report,
        verdict=replace(report.verdict, shares={**none, "compute": busy, "launch": idle}),
        devices=[replace(report.devices[0], busy_ns=busy, window_ns=busy + idle)],
        window=replace(report.window, device_ns=busy + idle, steps=steps, parts=parts),
    )
