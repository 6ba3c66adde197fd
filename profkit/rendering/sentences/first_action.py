"""What to do first where no advice has a price: without a GPU, with memory alone, or where a rank is late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.model.report import Memory, Report
from profkit.model.report_memory import HolderRow, OutOfMemory
from profkit.model.report_verdict import Verdict
from profkit.rendering.sentences.memory import EXPANDABLE
from profkit.rendering.sentences.verdict import HARDLY_ANY
from profkit.units import bytes_text

__all__ = ["first_action"]

_OF_SHORTAGE: Final = {
    "fragmented": EXPANDABLE,
    "streams": "Free what other streams and private pools hold: this request cannot use it.",
    "limit": "Raise the process's memory limit, if it has one: the GPU itself had room.",
    "outside": "Stop what else uses the GPU: nvidia-smi lists it.",
}

_TO_HOLD_LESS: Final = {
    "activation": "Recompute activations (torch.utils.checkpoint), or make the batch smaller.",
    "parameter": "Shard parameters over ranks, or keep them in a smaller type.",
    "gradient": "Shard gradients over ranks, or keep them in a smaller type.",
    "optimizer_state": "Shard the optimizer's state over ranks, or use an optimizer with less.",
}
"""By the category of what holds most of the peak."""


def first_action(report: Report) -> str | None:
    """One sentence on what to do first; None where the files do not show it."""
    if report.memory is not None and report.memory.oom and (action := _after_failure(report.memory.oom[0])):
        return action
    late = report.verdict.straggler
    if late is not None:
        if late.rank is None or late.before_recording:
            return None
        return f"Analyse the file of rank {late.rank} and that of another rank, each alone: what differs makes it late."
    if report.memory is not None and not report.devices:
        return _of_memory(report.memory)
    return _without_gpu(report.verdict)


def _after_failure(oom: OutOfMemory) -> str | None:
    if oom.kind in _OF_SHORTAGE and not (oom.kind == "fragmented" and oom.expandable_segments):
        return _OF_SHORTAGE[oom.kind]
    most = next((row for row in oom.holders if row.where), None)
    if most is None:
        return None
    held = f"Reduce memory use: {most.where} holds the most, {bytes_text(most.bytes)}."
    remedy = _TO_HOLD_LESS.get(str(most.category))
    return f"{held} {remedy}" if remedy else held


def _of_memory(memory: Memory) -> str | None:
    if memory.peak_allocated_bytes is None:
        return "Record a history of allocations: profkit record memory -- python train.py"
    found = {finding.code: finding.params for finding in memory.findings}
    grown = next((row for row in memory.growth if row.where), None)
    if "leak" in found and grown is not None:
        size = bytes_text(grown.bytes_per_step)
        return f"Find what keeps the tensors of {grown.where} alive: they grow by {size} per step."
    params = found.get("fragmentation")
    if params is not None and not params["expandable_segments"]:
        return EXPANDABLE
    most = next((row for row in memory.at_peak if row.category is not None), None)
    return None if most is None else _of_the_peak(most, memory.complete)


def _of_the_peak(most: HolderRow, complete: bool) -> str:
    if most.where is None and complete:
        return "Record stacks too (profkit record memory), so that the report can say what holds the peak."
    if most.where is None:
        return "Record from the start of the program: code that ran before the recording allocated most of the peak."
    remedy = _TO_HOLD_LESS.get(str(most.category))
    held = f"To lower the peak, begin with {most.where}, which holds the most: {bytes_text(most.bytes)}."
    return f"{held} {remedy}" if remedy else held


def _without_gpu(verdict: Verdict) -> str | None:
    parts = [fact.params for fact in verdict.doubts if fact.code == "host-part"]
    if not parts:
        return None
    most = parts[0]  # the largest comes first
    if most["part"] == "input":
        return "Prepare the next batch while the step runs: with a DataLoader, raise its num_workers."
    if most["part"] == "communication":
        return "Look at the other ranks: collectives on the host take most of the time, and one may be late."
    names, times = most["operators"], most["operator_times"]
    assert isinstance(names, Sequence)
    assert isinstance(times, Sequence)
    whole = "step" if most["steps"] else "recording"
    if not names and most["part"] != "rest":
        return f"Record with torch.profiler: it names the operators of the {most['part']} part, the largest of the {whole}."
    if not names or int(times[0]) < HARDLY_ANY * int(str(most["part_ns"])):
        return f"Mark the parts of the {whole} with profkit.phase: no range or operator names what takes most of it."
    return f"Look at {names[0]} first: it takes the most time in the largest part of the {whole}."
