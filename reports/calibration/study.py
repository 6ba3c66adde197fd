"""The study's recordings met with hardware counters: one row for a kernel of a step, one for a recording."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
from packed import unpacked

from profkit.model import OperationKind, Trace
from profkit.model.work import Basis, OperationBound
from profkit.readers import read
from profkit.report.assembly import summarise, timelines
from profkit.report.views import Options

DATA = Path(__file__).parent / "data"
RECORDERS = {"nsys": ".sqlite.gz", "emit": ".sqlite.gz", "kineto": ".json.gz"}
MATRIX = re.compile(
    r"gemm|gemv|nvjet|xmma|cutlass|flash_|fmha|sdpa|conv(?!ert)|[dw]grad|fprop|winograd|splitkreduce|dot_kernel",
    re.I,
)
"""Names of matrix kernels, told apart from profkit's own classes so that these cannot flatter the score."""
BLIND = ("blind", "blind again")
SAYS_SOMETHING = 45.0
"""Percent of a peak above which counters tell a kernel's side (issue: one of the two exceeds 45 %)."""


@dataclass(frozen=True)
class Workload:
    """What `workloads.json` says of a step."""

    name: str
    kind: str
    truth: str
    why: str
    counters: bool
    held_out: bool | None
    """None: it is in neither part, since it was added when the models stood."""
    blind: int = 0
    """The round in which it was added so."""

    @property
    def split(self) -> str:
        return {None: BLIND[max(self.blind - 1, 0)], True: "held out", False: "fit"}[self.held_out]


@dataclass(frozen=True)
class KernelRow:
    """One kernel of one step: what profkit says, and what the counters say. Times are ns of one step."""

    workload: Workload
    recorder: str
    name: str
    matrix: bool
    time_ns: float
    sm: float
    dram: float
    measured_bytes: float
    compulsory_read: float
    bytes: float
    bound: str
    efficiency: float
    unsaturated: bool
    basis: str

    @property
    def expected(self) -> str | None:
        """The side that the counters say, None where neither throughput says enough."""
        if max(self.sm, self.dram) <= SAYS_SOMETHING:
            return None
        return "compute" if self.matrix and self.sm > self.dram else "memory"

    @property
    def group(self) -> str:
        """Matrix kernels by their counters' side, and the rest: the classes that must each hold."""
        if not self.matrix:
            return "other kernels"
        return "matrix, compute" if self.sm > self.dram else "matrix, memory"


@dataclass(frozen=True)
class VerdictRow:
    """What one recording's report says, with the unprofiled step known and without."""

    workload: Workload
    recorder: str
    bound: str
    bound_plain: str
    share: float
    busy_shares: dict[str, float]
    busy_ms: float
    step_ms: float
    plain_ms: float | None
    confidence: str


def workloads() -> list[Workload]:
    return [Workload(**row) for row in json.loads((DATA / "workloads.json").read_text())]


def plain_ms(work: Workload) -> float | None:
    found = json.loads((DATA / "plain.json").read_text()).get(work.name)
    return found["step_ms"] if found else None


def recordings(work: Workload) -> Iterator[tuple[str, Trace]]:
    for recorder, suffix in RECORDERS.items():
        path = unpacked() / recorder / f"{work.name}{suffix}"
        if path.exists():
            trace = read(path)
            assert isinstance(trace, Trace)
            yield recorder, trace


def counters(work: Workload) -> list[dict[str, Any]]:
    """ncu's rows of one step, in launch order."""
    with gzip.open(unpacked() / "ncu" / f"{work.name}.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    shape = {c: [tuple(int(n) for n in re.findall(r"\d+", r[c])) for r in rows] for c in ("grid", "block")}
    numbers = [
        {k: float(v or "nan") for k, v in r.items() if k not in ("kernel", "grid", "block")} for r in rows
    ]
    return [
        {"kernel": r["kernel"], "shape": (g, b), **n}
        for r, g, b, n in zip(rows, shape["grid"], shape["block"], numbers, strict=True)
    ]


def kernel_rows(work: Workload, recorder: str, trace: Trace) -> list[KernelRow]:
    """The kernels of a trace's steps, matched with ncu's by their order and shape, averaged over the steps."""
    view = timelines([trace], Options())[0][0]
    table = counters(work)
    shapes = [row["shape"] for row in table]
    operations, steps = trace.operations, view.steps
    grid = np.stack([operations.grid_x, operations.grid_y, operations.grid_z], axis=1).tolist()
    block = np.stack([operations.block_x, operations.block_y, operations.block_z], axis=1).tolist()
    places: list[list[int]] = [[] for _ in table]
    for step in range(steps.count):
        mine = np.flatnonzero((steps.of_operation == step) & (operations.kind == OperationKind.KERNEL))
        mine = mine[np.argsort(view.launches.time_ns[mine], kind="stable")]
        found = [(tuple(grid[i]), tuple(block[i])) for i in mine]
        for start, ours, size in SequenceMatcher(None, shapes, found, autojunk=False).get_matching_blocks():
            for offset in range(size):
                places[start + offset].append(int(mine[ours + offset]))
    return [
        _kernel_row(work, recorder, trace, view, np.array(rows), counted)
        for rows, counted in zip(places, table, strict=True)
        if rows
    ]


def _kernel_row(work, recorder, trace, view, rows, counted) -> KernelRow:  # type: ignore[no-untyped-def]
    found, operations = view.work, trace.operations
    time = (operations.end_ns - operations.start_ns)[rows].astype(float)
    bounds = np.bincount(found.bound[rows], time, minlength=len(OperationBound))
    kernel = found.class_of_name[int(operations.name[rows[0]])]
    return KernelRow(
        workload=work,
        recorder=recorder,
        name=kernel.short_name,
        matrix=bool(MATRIX.search(counted["kernel"])),
        time_ns=float(time.mean()),
        sm=counted["sm_throughput_pct"],
        dram=counted["dram_throughput_pct"],
        measured_bytes=counted["dram_bytes"],
        compulsory_read=counted["dram_read_bytes"],
        bytes=float(found.dram_bytes[rows].mean()),
        bound=OperationBound(int(bounds.argmax())).name.lower(),
        efficiency=float(found.efficiency[rows].mean()),
        unsaturated=float(time[found.unsaturated[rows] == 1].sum()) > time.sum() / 2,
        basis=Basis(int(found.basis[rows[0]])).name.lower(),
    )


def verdict(work: Workload, recorder: str, trace: Trace) -> VerdictRow:
    plain = plain_ms(work)
    known = summarise([trace], Options(plain_step_ns=round(plain * 1e6))) if plain else None
    alone = summarise([trace])
    shares, total = alone.verdict.shares, sum(alone.verdict.shares.values())
    busy = {k: shares[k] for k in ("compute", "memory", "unclassified", "communication", "transfer")}
    busy["overhead"] = alone.verdict.launch.small_kernels
    kept = max(1, sum(step.kept for step in alone.window.steps))
    return VerdictRow(
        workload=work,
        recorder=recorder,
        bound=alone.verdict.bound,
        bound_plain=known.verdict.bound if known else alone.verdict.bound,
        share=alone.verdict.share,
        busy_shares={k: v / max(sum(busy.values()), 1) for k, v in busy.items()},
        busy_ms=sum(busy.values()) / kept / 1e6,
        step_ms=total / kept / 1e6,
        plain_ms=plain,
        confidence=alone.verdict.confidence,
    )
