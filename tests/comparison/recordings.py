"""Real recordings for comparisons: as they are, resampled, and with slower kernels."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np

import profkit
from profkit.comparison.side import apportioned, kept_steps
from profkit.readers import read
from profkit.report.assembly import summarise
from tests.shared import DATA

QUEUED_NS = 10_000
"""A kernel that starts within this after the one before it was waiting for it."""


@cache
def recorded(name, folder="nsys"):
    suffix = "sqlite.gz" if folder == "nsys" else "json.gz"
    return profkit.analyze(DATA / folder / f"{name}.{suffix}").result


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
    return summarise([replace(trace, operations=replace(operations, start_ns=start, end_ns=end))])


def resampled(result, count, random, *, factor=1.0, run_spread=0.0):
    """A recording of as many steps drawn from those of a real one.

    Steps differ as the real ones do: their busy and idle times are the real means, spread by the real standard
    deviations. ``factor`` makes every step longer; ``run_spread`` is what whole recordings differ by.
    """
    devices = len(result.devices)
    real = [
        (s["gpu_busy_ns"] / devices, (s["device_ns"] - s["gpu_busy_ns"]) / devices)
        for s in kept_steps(result)
    ]
    mean, spread = np.mean(real, axis=0), np.std(real, axis=0, ddof=1)
    run = 1 + run_spread * random.standard_normal()
    drawn = np.maximum(mean + spread * random.standard_normal((count, 2)), 0) * factor * run
    return of_steps(result, drawn.round().astype(np.int64).tolist())


def of_steps(result, times):
    """A report of one device whose steps have these busy and idle times."""
    template = kept_steps(result)[0]
    steps = [template | {"device_ns": busy + idle, "gpu_busy_ns": busy, "note": None} for busy, idle in times]
    busy, idle = (sum(column) for column in zip(*times, strict=True))
    part = {"share": "compute", "cause": None, "family": "gemm", "kernel": None, "phase": None, "ns": busy}
    waits = Counter()
    for row in result.window["parts"]:
        if row["cause"]:
            waits[row["cause"]] += row["ns"]
    cut = apportioned({cause: ns * idle for cause, ns in waits.items()}, max(waits.total(), 1))
    gaps = [part | {"share": "launch", "cause": cause, "family": None, "ns": ns} for cause, ns in cut.items()]
    return replace(
        result,
        devices=[result.devices[0] | {"busy_ns": busy, "window_ns": busy + idle}],
        window=result.window | {"device_ns": busy + idle, "steps": steps, "parts": [part, *gaps]},
    )
