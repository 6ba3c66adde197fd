"""What every file gives to the comparison of ranks, and what comes out for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from profkit.model import Finding
from profkit.model.report import DeviceRow
from profkit.model.report_ranks import CommunicationRow, Parallelism, RankComparison, StreamRow
from profkit.model.rows import replace as changed
from profkit.ranks.collective_events import DeviceCollectives, collectives_of
from profkit.ranks.collective_table import with_waiting
from profkit.ranks.parallelism import merge_parallelism, parallelism_of
from profkit.ranks.rank_findings import bucket_findings, rank_findings
from profkit.ranks.rank_table import RanksFound, compare_ranks
from profkit.ranks.streams import stream_findings, stream_rows
from profkit.timeline.view import TraceView

__all__ = ["FileOfRanks", "RankSection", "file_of_ranks", "rank_section"]


@dataclass(frozen=True, kw_only=True)
class FileOfRanks:
    """What one file gives: plain values and short columns, so that it can be sent around."""

    devices: list[DeviceCollectives]
    parallelism: list[Parallelism]
    streams: list[StreamRow]
    world_size: int | None

    def numbered(self, file: int, first_device: int) -> FileOfRanks:
        """The same, as that file of a report, with its devices numbered from a first one."""
        shift = first_device - min((d.device for d in self.devices), default=0)
        return replace(
            self,
            devices=[replace(d, file=file, device=d.device + shift) for d in self.devices],
            streams=[changed(row, device=row.device + shift) for row in self.streams],
        )


@dataclass(frozen=True, kw_only=True)
class RankSection:
    """What the comparison gives to the report."""

    found: RanksFound
    findings: list[Finding]
    communication: Sequence[CommunicationRow]
    method: RankComparison


def file_of_ranks(view: TraceView, file: int, devices: Sequence[DeviceRow]) -> FileOfRanks:
    """What a trace gives to the comparison.

    Args:
        view: The trace, with its window.
        file: Its number in the report.
        devices: The report's rows of its devices.
    """
    said = view.trace.source.facts.get("world_size", "")
    return FileOfRanks(
        devices=collectives_of(view, file, devices),
        parallelism=parallelism_of(view),
        streams=stream_rows(view, [row.id for row in devices]),
        world_size=int(said) if said.isdecimal() else None,
    )


def rank_section(files: Sequence[FileOfRanks], communication: Sequence[CommunicationRow]) -> RankSection:
    """Compare the ranks of a report, and tell waiting from transfer in its communication table.

    Args:
        files: What each trace gives.
        communication: The communication table.
    """
    devices = [device for file in files for device in file.devices]
    world_size = max((f.world_size for f in files if f.world_size is not None), default=None)
    found = compare_ranks(devices, world_size)
    communication = with_waiting(communication, found.waiting, found.buffered)
    parallelism = merge_parallelism([file.parallelism for file in files])
    streams = [row for file in files for row in file.streams]
    return RankSection(
        found=found,
        findings=[
            *rank_findings(found, parallelism, world_size),
            *bucket_findings(communication, sum(len(d.step_ns) for d in devices)),
            *stream_findings(streams),
        ],
        communication=communication,
        method=changed(found.method, parallelism=parallelism, streams=streams),
    )
