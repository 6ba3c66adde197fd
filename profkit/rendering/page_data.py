"""What the page's scripts work on: the kernel table and the series of the plots, small whatever the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from profkit.model.report import DeviceRow, KernelRow, Report, StepRow
from profkit.rendering.digest import number_of, phase_tree, scale_of
from profkit.rendering.page_plots import (
    MemoryPlots,
    Series,
    TimelinePlot,
    memory_plots,
    series_of,
    timeline_plot,
)
from profkit.rendering.page_strings import PageStrings
from profkit.rendering.sentences.labels import (
    BASES,
    BOUNDS,
    CAUSES,
    OCCUPANCY_LIMITS,
    SHARES,
    Term,
    shapes_text,
)

__all__ = ["KERNEL_ROWS", "PageData", "has_plots", "page_data"]

KERNEL_ROWS: Final = 1000
"""Rows of the kernel table in the page. What is beyond stands there as one number."""

_PER_ROW = 24
_DEVICES = 64
_STEPS = 64
_PHASES = 200
_SERIES = 24
_LEAST_SHARE = 0.0005
"""A kernel under this share of busy time is no point of the roofline."""


class PageScale(msgspec.Struct, frozen=True):
    """What times are divided by before they are shown."""

    divisor: int
    label: str


class PageKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``kernels[]``; texts are indices of the strings, maps are lists, the largest first."""

    name: int
    short_name: int
    family: int
    dtype: int
    bound: int
    basis: int
    count: int
    total_ns: int
    mean_ns: int
    median_ns: int
    min_ns: int
    max_ns: int
    share: float
    efficiency: float | None
    flop: int | None
    dram_bytes: int | None
    tflops: float | None
    gbs: float | None
    tensor_core: bool | None
    unsaturated: bool
    grid: Sequence[int] | None
    block: Sequence[int] | None
    shapes: int
    """The shapes of the operator's inputs."""
    occupancy: float | None
    limit: int
    """What limits the occupancy."""
    waves: float | None
    steps: Sequence[int]
    """Time, in the order of the page's steps."""
    devices: Sequence[int]
    """Time, in the order of the page's devices."""
    phases: Sequence[tuple[int, int, int | None]]
    """Path, time, and launches where they are known."""
    operators: Sequence[tuple[int, int]]
    modules: Sequence[tuple[int, int]]
    lines: Sequence[tuple[int, int]]


class KernelsLeft(msgspec.Struct, frozen=True):
    """The rows that are not in the page."""

    rows: int
    total_ns: int
    count: int


class PagePhase(msgspec.Struct, frozen=True):
    """A phase that can be chosen."""

    path: int
    depth: int


class PageStep(msgspec.Struct, frozen=True):
    """A step that can be chosen."""

    name: int
    busy_ns: int


class PageDevice(msgspec.Struct, frozen=True):
    """A device that can be chosen."""

    id: int
    rank: int | None
    name: str | None
    peaks: Mapping[str, float]
    bandwidth_gbs: float | None
    busy_ns: int


class PageWords(msgspec.Struct, frozen=True):
    """The labels of names."""

    shares: Mapping[str, str]
    bounds: Mapping[str, str]
    causes: Mapping[str, str]
    bases: Mapping[str, str]


class PageData(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the scripts know."""

    scale: PageScale
    kernels: Sequence[PageKernel]
    kernels_left: KernelsLeft
    phases: Sequence[PagePhase]
    steps: Sequence[PageStep]
    devices: Sequence[PageDevice]
    timeline: TimelinePlot | None
    memory: MemoryPlots | None
    utilisation: Sequence[Series]
    words: PageWords
    strings: Sequence[str]


def page_data(report: Report) -> PageData:
    """The data of the page; texts of the tables are indices of ``strings``."""
    strings = PageStrings()
    scale = scale_of(report)
    ordered = sorted(report.kernels, key=lambda row: -row.total_ns)
    left = ordered[KERNEL_ROWS:]
    steps = _steps(report)
    devices = report.devices[:_DEVICES]
    return PageData(
        scale=PageScale(scale.divisor, scale.label),
        kernels=[_kernel(row, strings, steps, devices) for row in ordered[:KERNEL_ROWS]],
        kernels_left=KernelsLeft(
            len(left), sum(row.total_ns for row in left), sum(row.count for row in left)
        ),
        phases=[
            PagePhase(strings.add(row.path), depth) for depth, row in phase_tree(report.phases)[:_PHASES]
        ],
        steps=[PageStep(strings.add(row.name), row.gpu_busy_ns) for row in steps],
        devices=[
            PageDevice(row.id, row.rank, row.name, row.peaks, row.bandwidth_gbs, row.busy_ns)
            for row in devices
        ],
        timeline=timeline_plot(report.timeline, strings),
        memory=memory_plots(report.memory, strings),
        utilisation=[series_of(row) for row in report.utilisation[:_SERIES]],
        words=PageWords(_labels(SHARES), _labels(BOUNDS), _labels(CAUSES), BASES),
        strings=strings.texts,
    )


def has_plots(report: Report, data: PageData) -> bool:
    """Whether the page of this data shows a plot, and so needs plotly."""
    known = {row.path for row in data.phases}
    families = len({path for row in data.kernels for path, _, _ in row.phases if path in known}) > 1
    roofline = any(map(_on_roofline, report.kernels))
    return bool(roofline or families or data.timeline or data.memory or data.utilisation)


def _on_roofline(row: KernelRow) -> bool:
    known = all(number_of(value) > 0 for value in (row.flop, row.dram_bytes, row.tflops))
    return known and row.share > _LEAST_SHARE and row.bound != "overhead"


def _labels(terms: Mapping[str, Term]) -> dict[str, str]:
    return {name: term.label for name, term in terms.items()}


def _steps(report: Report) -> list[StepRow]:
    """The kept steps by which kernels are told apart, in order of time; none where their rows do not say."""
    kept = [row for row in report.window.steps if row.kept]
    distinct = len({row.name for row in kept}) == len(kept) <= _STEPS
    return kept if distinct and any(row.steps for row in report.kernels) else []


def _kernel(
    row: KernelRow, strings: PageStrings, steps: Sequence[StepRow], devices: Sequence[DeviceRow]
) -> PageKernel:
    phases = sorted(row.phases.items(), key=lambda item: -item[1].ns)[:_PER_ROW]
    return PageKernel(
        name=strings.add(row.name),
        short_name=strings.add(row.short_name),
        family=strings.add(row.family),
        dtype=strings.add(row.dtype),
        bound=strings.add(row.bound),
        basis=strings.add(row.basis),
        count=row.count,
        total_ns=row.total_ns,
        mean_ns=row.mean_ns,
        median_ns=row.median_ns,
        min_ns=row.min_ns,
        max_ns=row.max_ns,
        share=row.share,
        efficiency=row.efficiency,
        flop=row.flop,
        dram_bytes=row.dram_bytes,
        tflops=row.tflops,
        gbs=row.gbs,
        tensor_core=row.tensor_core,
        unsaturated=bool(row.unsaturated),
        grid=row.grid,
        block=row.block,
        shapes=strings.add(shapes_text(row.shapes)),
        occupancy=row.occupancy,
        limit=strings.add(OCCUPANCY_LIMITS.get(row.occupancy_limit or "")),
        waves=row.waves,
        steps=[row.steps.get(step.name, 0) for step in steps],
        devices=[row.devices.get(str(device.id), 0) for device in devices],
        phases=[(strings.add(path), part.ns, part.count) for path, part in phases],
        operators=_pairs(row.operators, strings),
        modules=_pairs(row.modules, strings),
        lines=_pairs(row.source_lines, strings),
    )


def _pairs(numbers: Mapping[str, int], strings: PageStrings) -> list[tuple[int, int]]:
    """A map of names to numbers as its largest pairs."""
    ordered = sorted(numbers.items(), key=lambda pair: -pair[1])[:_PER_ROW]
    return [(strings.add(name), number) for name, number in ordered]
