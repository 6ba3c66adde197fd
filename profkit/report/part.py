"""What traces give to a report: parts that add up, so that one file and a thousand are put together alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import Any, Final

import numpy as np

from profkit.model import Finding, Trace
from profkit.model.report import DeviceRow
from profkit.model.report_kernels import OperatorRow, RangeRow, SourceRow
from profkit.model.report_precision import Autocast, OperatorTypes, PrecisionRow, Tf32Row
from profkit.model.report_ranks import CommunicationRow
from profkit.model.report_time import Idle, PartRow, PhaseRow, SyncRow, Totals, UtilisationRow, Window
from profkit.model.report_verdict import Step
from profkit.model.states import BUSY_STATES
from profkit.model.summing import Summed
from profkit.ranks import FileOfRanks, file_of_ranks
from profkit.ranks.collective_table import communication_rows, merge_communication
from profkit.report.trace_health import TraceHealth
from profkit.report.unprofiled import DeviceStep, device_steps, with_few_exchanges
from profkit.report.verdict import Grounds
from profkit.roofline.autocast import autocast_rows, autocast_together
from profkit.roofline.kernel_table import KernelSums, kernel_sums, kernels_together
from profkit.roofline.precision_findings import PRECISION_FINDINGS, precision_findings
from profkit.roofline.precision_map import (
    OPERATOR_TYPES,
    TF32,
    operator_types,
    precision_rows,
    precision_together,
    tf32_rows,
)
from profkit.simulation.exchanged import Exchanged
from profkit.timeline.gpu_metrics import utilisation_rows
from profkit.timeline.idle_tables import SYNCS, idle_row, sync_rows
from profkit.timeline.phase_table import PHASES, phase_rows
from profkit.timeline.range_tables import OPERATORS, RANGES, operator_rows, range_rows
from profkit.timeline.source_tables import SOURCES, source_rows
from profkit.timeline.step_times import step_times
from profkit.timeline.view import Span, TraceView
from profkit.timeline.window_parts import PARTS, part_rows
from profkit.timeline.window_table import shares_row, states_of, totals_row, window_row

__all__ = ["Part", "TraceFacts", "device_rows"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceFacts:
    """What stays apart for each trace, in its own times and with its own device numbers.

    Only the whole report knows which clocks and numbers they get.
    """

    span: Span
    """From its first to its last event."""
    epoch_ns: int | None
    devices: Sequence[DeviceRow]
    window: Window
    step: Step
    totals: Totals
    idle: Idle
    utilisation: Sequence[UtilisationRow]
    ranks: FileOfRanks
    health: TraceHealth


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """What some traces give to the tables: ``part + part`` is that of both, in any grouping.

    Nothing is cut off and nothing is rounded, so a report of sums is the report of the whole. It can be pickled.
    """

    grounds: Grounds
    traces: Sequence[TraceFacts] = ()
    unprofiled: Sequence[DeviceStep] = ()
    """The step of each device without a profiler."""
    exchanged: Exchanged = field(default_factory=Exchanged)
    """What collectives take."""
    parts: Sequence[PartRow] = ()
    phases: Sequence[PhaseRow] = ()
    kernels: Sequence[KernelSums] = ()
    """With devices numbered over the traces of the part."""
    operators: Sequence[OperatorRow] = ()
    ranges: Sequence[RangeRow] = ()
    sources: Sequence[SourceRow] = ()
    ranges_too_deep: int = 0
    syncs: Sequence[SyncRow] = ()
    communication: Sequence[CommunicationRow] = ()
    precision: Sequence[PrecisionRow] = ()
    operator_types: Sequence[OperatorTypes] = ()
    tf32: Sequence[Tf32Row] = ()
    autocast: Sequence[Autocast] = ()
    """One at most once it is summed."""
    precision_findings: Sequence[Finding] = ()

    @classmethod
    def of(cls, view: TraceView) -> Part:
        """That of one trace, with its window."""
        devices = device_rows(view)
        ranges, too_deep = range_rows(view)
        facts = TraceFacts(
            span=view.span,
            epoch_ns=view.trace.unix_epoch_ns,
            devices=devices,
            window=window_row(view),
            step=step_times([view]),
            totals=totals_row(view),
            idle=idle_row(view),
            utilisation=utilisation_rows(view),
            ranks=file_of_ranks(view, 0, devices),
            health=TraceHealth.of(view),
        )
        return cls(
            traces=[facts],
            grounds=Grounds.of([view]),
            unprofiled=device_steps(view),
            exchanged=Exchanged.of([view]),
            parts=part_rows(view),
            phases=phase_rows(view),
            kernels=kernel_sums(view),
            operators=operator_rows(view),
            ranges=ranges,
            sources=source_rows(view),
            ranges_too_deep=too_deep,
            syncs=sync_rows(view),
            communication=communication_rows(view),
            precision=precision_rows(view),
            operator_types=operator_types(view),
            tf32=tf32_rows(view),
            autocast=autocast_rows(view),
            precision_findings=precision_findings(view),
        )

    @classmethod
    def together(cls, parts: Sequence[Part]) -> Part:
        """The sum of some parts; of none, a part of no trace."""
        first = accumulate((part.device_count for part in parts), initial=0)
        columns = {f.name: [each for part in parts for each in _items(part, f.name)] for f in fields(cls)}
        return cls(
            grounds=Grounds.together([part.grounds for part in parts]),
            traces=columns["traces"],
            unprofiled=with_few_exchanges(columns["unprofiled"]),
            exchanged=Exchanged.together([part.exchanged for part in parts]),
            ranges_too_deep=sum(part.ranges_too_deep for part in parts),
            kernels=kernels_together(
                kernel.numbered(at) for part, at in zip(parts, first, strict=False) for kernel in part.kernels
            ),
            communication=merge_communication(columns["communication"]),
            precision=precision_together(columns["precision"]),
            autocast=list(filter(None, [autocast_together(columns["autocast"])])),
            **{name: table.rows(columns[name]) for name, table in _TABLES.items()},
        )

    def __add__(self, other: Part) -> Part:
        return self.together([self, other])

    @property
    def device_count(self) -> int:
        """The devices of its traces."""
        return sum(len(trace.devices) for trace in self.traces)


_TABLES: Final[Mapping[str, Summed[Any]]] = {
    "parts": PARTS,
    "phases": PHASES,
    "operators": OPERATORS,
    "ranges": RANGES,
    "sources": SOURCES,
    "syncs": SYNCS,
    "operator_types": OPERATOR_TYPES,
    "tf32": TF32,
    "precision_findings": PRECISION_FINDINGS,
}


def _items(part: Part, name: str) -> Iterable[Any]:
    value = getattr(part, name)
    return value if isinstance(value, Sequence) else ()


def device_rows(view: TraceView) -> list[DeviceRow]:
    """The devices of a trace, numbered in it."""
    rows = []
    for at, device in enumerate(view.trace.devices):
        states, gpu = states_of(view, at), view.gpus[at]
        bandwidth = gpu.bandwidth_bytes_per_s if gpu else device.bandwidth_bytes_per_s
        rows.append(
            DeviceRow(
                id=at,
                ordinal=device.ordinal,
                rank=_rank(view.trace, at),
                name=device.name,
                peaks={d: rate / 1e12 for d, rate in sorted(gpu.best_peaks().items())} if gpu else {},
                bandwidth_gbs=bandwidth / 1e9 if bandwidth else None,
                peaks_source=gpu.source if gpu else None,
                window_ns=view.windows[at].total_ns,
                shares=shares_row(states),
                busy_ns=int(states[list(BUSY_STATES)].sum()),
            )
        )
    return rows


def _rank(trace: Trace, device: int) -> int | None:
    processes = np.unique(trace.operations.process[trace.operations.device == device]).tolist()
    ranks = {trace.processes[p].rank for p in processes if p < len(trace.processes)}
    return ranks.pop() if len(ranks) == 1 and None not in ranks else trace.source.rank
