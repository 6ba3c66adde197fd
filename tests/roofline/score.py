"""How well bounds agree with hardware counters: the numbers of the calibration study, from a trace and ncu's table.

A kernel of the trace meets ncu's rows of the same class, grid and block. Everything is weighted by the trace's time.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profkit.model import OperationKind, Trace
from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import OperationBound, OperationWork
from profkit.roofline.kernel_names import classify

LONG_NS = 10_000
Key = tuple[object, ...]


@dataclass(frozen=True)
class Counters:
    """Means of ncu over the launches of one kernel with one grid and block."""

    sm: float
    dram: float
    dram_bytes: float
    duration_ns: float


@dataclass(frozen=True)
class Measured:
    """One group of a trace's kernels, with its counters."""

    name: str
    kernel: KernelClass
    count: int
    time_ns: float
    counters: Counters
    dram_bytes: float
    efficiency: float
    bound_ns: tuple[float, ...]
    unsaturated_ns: float
    basis: int

    @property
    def mean_ns(self) -> float:
        return self.time_ns / self.count

    @property
    def bound(self) -> OperationBound:
        return OperationBound(int(np.argmax(self.bound_ns)))

    @property
    def expected(self) -> OperationBound | None:
        """What the counters say, for kernels where they say something (one of the two over 45 %)."""
        if max(self.counters.sm, self.counters.dram) <= 45:
            return None
        matrix, by_arithmetic = self.kernel.is_matrix, self.counters.sm > self.counters.dram
        if self.kernel.family is Family.CONVOLUTION and not matrix and by_arithmetic:
            return None  # depthwise: neither a matrix product nor pointwise
        return OperationBound.COMPUTE if matrix and by_arithmetic else OperationBound.MEMORY


def key_of(name: str, grid: Iterable[int], block: Iterable[int]) -> Key:
    kernel = classify([name])[0]
    numbers = tuple(
        re.findall(
            r"(?:lambda\([^()]*\) \(instance |lambda\([^()]*\)#)(\d+)", name.replace("'lambda", "lambda")
        )
    )
    return kernel.short_name, kernel.function, numbers[:3], tuple(grid), tuple(block)


def read_counters(path: Path) -> dict[Key, list[Counters]]:
    rows = defaultdict(list)
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        for row in csv.DictReader(file):
            grid, block = (tuple(int(n) for n in re.findall(r"\d+", row[c])) for c in ("grid", "block"))
            columns = ("sm_throughput_pct", "dram_throughput_pct", "dram_bytes", "duration_ns")
            rows[key_of(row["kernel"], grid, block)].append(Counters(*(float(row[c]) for c in columns)))
    return rows


def measure(
    trace: Trace, work: OperationWork, counters: dict[Key, list[Counters]]
) -> tuple[list[Measured], float]:
    """Kernels with counters, and the share of kernel time that they are.

    One name, grid and block may serve several shapes: each kernel meets the row nearest in duration, and each
    (row, modelled bytes) is a group. Kernels without a launch in the recording have no operator and are left out.
    """
    operations = trace.operations
    kernels = np.flatnonzero(operations.kind == OperationKind.KERNEL)
    launched = set(trace.calls.correlation.tolist())
    if launched:
        kernels = kernels[[c in launched for c in operations.correlation[kernels].tolist()]]
    duration = (operations.end_ns - operations.start_ns).astype(float)
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    keys: dict[tuple[int, ...], list[Counters]] = {}
    columns = ["name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
    table = np.stack([getattr(operations, c)[kernels].astype(np.int64) for c in columns], axis=1)
    for row, key in zip(kernels.tolist(), map(tuple, table.tolist()), strict=True):
        if key not in keys:
            keys[key] = counters.get(key_of(trace.strings[key[0]], key[1:4], key[4:7]), [])
        if keys[key]:
            nearest = min(keys[key], key=lambda c: abs(np.log(max(duration[row], 1.0) / c.duration_ns)))
            groups[key, nearest, round(float(np.nan_to_num(work.dram_bytes[row])))].append(row)
    found = [
        _measured(trace, work, np.array(rows), key, counter, duration)  # type: ignore[arg-type]
        for (key, counter, _), rows in groups.items()
    ]
    return found, sum(m.time_ns for m in found) / max(duration[kernels].sum(), 1.0)


def _measured(trace, work, rows, key, counter, duration):  # type: ignore[no-untyped-def]
    time = duration[rows]
    return Measured(
        name=trace.strings[key[0]], kernel=work.class_of_name[key[0]], count=len(rows), time_ns=float(time.sum()),
        counters=counter, dram_bytes=float(np.mean(work.dram_bytes[rows])), efficiency=float(np.mean(work.efficiency[rows])),
        bound_ns=tuple(float(time[work.bound[rows] == b].sum()) for b in OperationBound),
        unsaturated_ns=float(time[work.unsaturated[rows] == 1].sum()), basis=int(work.basis[rows[0]]),
    )  # fmt: skip


@dataclass(frozen=True)
class Score:
    """Shares of time, each with the time that it is a share of (ns)."""

    bytes_within_quarter: tuple[float, float]
    compute_agrees: tuple[float, float]
    memory_agrees: tuple[float, float]
    slow_called_slow: tuple[float, float]
    busy_flagged: tuple[float, float]

    @property
    def class_agrees(self) -> float:
        hits = self.compute_agrees[0] * self.compute_agrees[1] + self.memory_agrees[0] * self.memory_agrees[1]
        return hits / max(self.compute_agrees[1] + self.memory_agrees[1], 1.0)


def score(groups: Iterable[Measured]) -> Score:
    groups = [g for g in groups if not g.kernel.is_collective]
    long = [g for g in groups if g.mean_ns > LONG_NS]
    close = [g for g in long if abs(g.dram_bytes / max(g.counters.dram_bytes, 1.0) - 1) <= 0.25]
    slow = [g for g in groups if max(g.counters.sm, g.counters.dram) < 35]
    busy = [g for g in groups if max(g.counters.sm, g.counters.dram) > 60]
    slow_time = sum(g.time_ns for g in slow)
    called = sum(g.unsaturated_ns + g.bound_ns[OperationBound.OVERHEAD] for g in slow)
    busy_time = sum(g.time_ns for g in busy)

    def agrees(bound: OperationBound) -> tuple[float, float]:
        expected = [g for g in groups if g.expected is bound]
        time = sum(g.time_ns for g in expected)
        return sum(g.bound_ns[bound] for g in expected) / max(time, 1.0), time

    total = sum(g.time_ns for g in long)
    return Score(
        bytes_within_quarter=(sum(g.time_ns for g in close) / max(total, 1.0), total),
        compute_agrees=agrees(OperationBound.COMPUTE),
        memory_agrees=agrees(OperationBound.MEMORY),
        slow_called_slow=(called / max(slow_time, 1.0), slow_time),
        busy_flagged=(sum(g.unsaturated_ns for g in busy) / max(busy_time, 1.0), busy_time),
    )
