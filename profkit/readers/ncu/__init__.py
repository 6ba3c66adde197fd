"""Nsight Compute: what ``ncu --csv --page raw`` printed, to kernels with their hardware counters.

The text is what a terminal would have shown, saved to a file: the CSV stands among the tool's own messages
(``==PROF==``) and whatever the program printed, with or without a row of units, and it may end anywhere. ncu runs each
kernel by itself, several times, so it knows how long a kernel takes and nothing of what lies between two: the kernels
stand here one after the other, and no time between them means anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.errors import ReadError
from profkit.model import (
    UNKNOWN,
    Counters,
    Device,
    Finding,
    OperationKind,
    Operations,
    Process,
    Severity,
    Source,
    Trace,
)
from profkit.readers.ncu.table import CounterTable, read_table
from profkit.readers.strings import Strings

__all__ = ["read_ncu"]

_DURATION: Final = "gpu__time_duration.sum"
_DRAM_BYTES: Final = ("dram__bytes.sum",)
_DRAM_PARTS: Final = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_SHARES: Final[Mapping[str, tuple[str, ...]]] = {
    "sm": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "dram": (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "tensor": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    ),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
}
"""For each share of peak, the metrics that say it, best first (Nsight Compute's metric names)."""


def read_ncu(data: bytes | bytearray | memoryview, name: str) -> Trace:
    """Read what ``ncu --csv --page raw`` printed.

    Args:
        data: The text, UTF-8.
        name: The base name to show.

    Raises:
        ReadError: There is no table of kernels in it, or one of another page.
    """
    table = read_table(data, name)
    if not table.count:
        raise ReadError(
            name,
            "Nsight Compute profiled no kernel",
            "Check the filters of ncu: --kernel-name, --launch-count.",
        )
    strings = Strings()
    names = np.array([strings.add(text) for text in table.text("Kernel Name")], np.int64)
    duration = _durations(table)
    end = np.cumsum(duration)
    device, devices = _devices(table)
    operations = _operations(table, names, device, end - duration, end)
    return Trace(
        source=Source(name=name, format="ncu", tool="Nsight Compute"),
        strings=strings.texts,
        processes=[Process(pid=p) for p in sorted({int(x) for x in table.whole("Process ID") if x >= 0})]
        or [Process(pid=0)],
        devices=devices,
        operations=operations,
        counters=_counters(table, duration),
        findings=_findings(table),
        dropped={"incomplete_rows": table.incomplete} if table.incomplete else {},
    )


@dataclass(frozen=True)
class _Axes:
    """The three sides of a grid or block, one row a kernel."""

    x: NDArray[np.int64]
    y: NDArray[np.int64]
    z: NDArray[np.int64]


def _axes(table: CounterTable, column: str) -> _Axes:
    """``(64, 2, 1)`` in three columns; -1 where a side is missing."""
    sides = [table.triple(text) for text in table.text(column)]
    stacked = np.array(sides, np.int64).reshape(-1, 3)
    return _Axes(stacked[:, 0], stacked[:, 1], stacked[:, 2])


def _operations(
    table: CounterTable,
    names: NDArray[np.int64],
    device: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
) -> Operations:
    grid, block = _axes(table, "Grid Size"), _axes(table, "Block Size")
    return Operations.of(
        table.count,
        start_ns=start,
        end_ns=end,
        kind=np.full(table.count, OperationKind.KERNEL),
        device=device,
        stream=table.whole("Stream"),
        context=table.whole("Context"),
        name=names,
        grid_x=grid.x,
        grid_y=grid.y,
        grid_z=grid.z,
        block_x=block.x,
        block_y=block.y,
        block_z=block.z,
        registers=table.whole("launch__registers_per_thread"),
        shared_bytes=_whole(table.number("launch__shared_mem_per_block")),
    )


def _durations(table: CounterTable) -> NDArray[np.int64]:
    """Whole nanoseconds; 1 where the metric is missing, so that a kernel is never without time."""
    return np.maximum(_whole(table.number(_DURATION)), 1)


def _counters(table: CounterTable, duration: NDArray[np.int64]) -> Counters:
    shares = {share: _first_known(table, metrics) / 100.0 for share, metrics in _SHARES.items()}
    dram = _first_known(table, _DRAM_BYTES)
    parts = sum((table.number(metric) for metric in _DRAM_PARTS), np.zeros(table.count))
    known = ~np.isnan(table.number(_DURATION))
    return Counters.of(
        table.count,
        operation=np.arange(table.count),
        duration_ns=np.where(known, duration, UNKNOWN),
        dram_bytes=np.where(np.isnan(dram), parts, dram),
        dram_share=shares["dram"],
        sm_share=shares["sm"],
        tensor_share=shares["tensor"],
        occupancy=shares["occupancy"],
    )


def _first_known(table: CounterTable, metrics: tuple[str, ...]) -> NDArray[np.float64]:
    """For each kernel the first of these metrics that was collected; NaN where none was."""
    found = np.full(table.count, np.nan)
    for metric in metrics:
        found = np.where(np.isnan(found), table.number(metric), found)
    return found


def _devices(table: CounterTable) -> tuple[NDArray[np.int64], list[Device]]:
    """The device of each kernel as a number from 0 on, and what the file says of each."""
    ordinals = table.whole("Device")
    known, rows, number = np.unique(ordinals, return_index=True, return_inverse=True)
    names, capabilities = table.text("device__attribute_display_name"), table.text("CC")
    sm_counts = table.whole("device__attribute_multiprocessor_count")
    l2_sizes = _whole(table.number("device__attribute_l2_cache_size"))
    devices = []
    for ordinal, row in zip(known.tolist(), rows.tolist(), strict=True):
        name = names[row] or None
        major, _, minor = capabilities[row].partition(".")
        capability = (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None
        sm_count, l2_bytes = int(sm_counts[row]), int(l2_sizes[row])
        devices.append(
            Device(
                ordinal=max(ordinal, 0),
                name=name,
                sm_count=sm_count if sm_count > 0 else None,
                l2_bytes=l2_bytes if l2_bytes > 0 else None,
                compute_capability=capability,
            )
        )
    return number.reshape(-1), devices


def _findings(table: CounterTable) -> tuple[Finding, ...]:
    found = []
    if table.incomplete:
        found.append(Finding("truncated", Severity.WARNING, count=table.incomplete, params={"what": "ncu"}))
    if table.errors:
        found.append(
            Finding(
                "ncu-errors", Severity.WARNING, count=len(table.errors), params={"first": table.errors[0]}
            )
        )
    if _DURATION not in table:
        found.append(Finding("ncu-no-duration", Severity.WARNING, params={"metric": _DURATION}))
    return tuple(found)


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers, -1 for what is unknown."""
    return np.where(np.isnan(values), UNKNOWN, np.round(np.nan_to_num(values))).astype(np.int64)
