"""What a rule is: evidence in a step, a change of it, and everything that a person should know before making it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from profkit.model.names import Level
from profkit.model.report_memory import FitRow, Memory
from profkit.model.report_verdict import AdviceRow
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.predict import Step
from profkit.timeline.view import TraceView
from profkit.units import duration_text

__all__ = ["Case", "Evidence", "Flags", "Rule", "kernels_seen"]

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Case:
    """A recorded step that rules look at."""

    view: TraceView
    device: int
    step: Step
    memory: Memory | None = None
    """The report's memory section, where a snapshot came with the trace."""
    fit: Sequence[FitRow] = ()
    """What each change would do to the memory of the step, where that is known."""

    @property
    def facts(self) -> StepFacts:
        """What is known of the step's operations."""
        return self.step.facts

    @property
    def host_span(self) -> tuple[int, int]:
        """When the host worked on the step: from the end of the one before to the return of its last launch."""
        return self.facts.host_span

    @property
    def capability(self) -> float:
        """The GPU's compute capability; 0 where it is not known."""
        gpu = self.facts.gpu
        text = gpu.compute_capability if gpu else ""
        return float(text) if text.replace(".", "", 1).isdigit() else 0.0

    @property
    def memory_used(self) -> float | None:
        """The share of the GPU's memory that was reserved at most, where both are known."""
        device = self.view.trace.devices[self.device]
        total = device.memory_bytes or (self.facts.gpu.memory_bytes if self.facts.gpu else None)
        peak = self.memory.peak_reserved_bytes if self.memory else None
        return float(peak) / float(total) if peak and total else None


@dataclass(frozen=True)
class Evidence:
    """What a rule found in a step."""

    why: str
    """One sentence with numbers."""
    seen: Sequence[str]
    """The kernels, calls or ranges that it rests on, most costly first."""
    changes: Sequence[str] | None
    """What the replay does to the step, by names of the registry; None where there is no price."""
    confidence: Level = "medium"
    """``high``, ``medium`` or ``low``."""
    action: str = ""
    """What to do in this case, where that differs from the rule's."""
    code: str = ""
    loader_workers: int | None = None
    """Processes that prepare batches, for the change that takes a number."""
    unmet: str | None = None
    """What has to be done before; the price is of both."""


@dataclass(frozen=True)
class Rule:
    """One piece of advice and when it holds."""

    id: str
    title: str
    find: Callable[[Case], Evidence | None]
    action: str
    code: str
    verify: str
    counter: Sequence[str] = field(default_factory=tuple)
    """When it does not help, or harms."""
    link: str = ""
    change: str | None = None
    """Its name in the registry of changes, where it is one of them."""

    def row(self, evidence: Evidence) -> AdviceRow:
        """The advice without its price."""
        return AdviceRow(
            id=self.id,
            title=self.title,
            why=evidence.why,
            evidence=list(evidence.seen),
            action=evidence.action or self.action,
            code=evidence.code or self.code,
            verify=self.verify,
            caveats=list(self.counter),
            saving_ns=None,
            speedup=None,
            before_ns=None,
            after_ns=None,
            limit=None,
            confidence=evidence.confidence,
            link=self.link,
            change=self.change,
            precondition_unmet=evidence.unmet,
        )


def kernels_seen(facts: StepFacts, chosen: Flags, most: int = 4) -> list[str]:
    """Kernels by name with their number and time in the step, longest first."""
    totals: dict[str, list[float]] = {}
    operations, strings = facts.view.trace.operations, facts.view.trace.strings
    for row in np.flatnonzero(chosen).tolist():
        kernel = facts.kernels[row]
        name = int(operations.name[facts.program.row[row]])
        text = kernel.short_name if kernel else (strings[name] if name >= 0 else "?")
        entry = totals.setdefault(text, [0, 0.0])
        entry[0] += 1
        entry[1] += float(facts.program.duration_ns[row])
    order = sorted(totals.items(), key=lambda item: -item[1][1])
    return [f"{name}: {count:.0f} per step, {duration_text(ns)}" for name, (count, ns) in order[:most]]
