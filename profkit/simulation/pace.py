"""What sets the pace of a step: what it would save if one resource were twice as fast, by replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind
from profkit.model.names import Resource
from profkit.model.report_verdict import LimitRow
from profkit.model.rows import Interval
from profkit.model.work import OperationBound
from profkit.simulation.exchanged import Kind, Shortest, kinds_of
from profkit.simulation.replay import replay
from profkit.simulation.step_program import LAUNCH, Program
from profkit.simulation.unprofiled import UnprofiledStep
from profkit.timeline.view import TraceView

__all__ = ["Exchange", "Pace", "Savings", "exchange_of", "pace_of", "savings_of"]

_SETS_THE_PACE: Final = 0.10
"""What a resource must save of the step to set its pace (design, section 2)."""

_ALONE: Final = 0.1
"""With more of the collectives' time seen on one device alone, their transfer is not known."""

Savings = Mapping[Resource, Sequence[float] | None]
"""In ns, with a fast, the likely and a slow host; None where it cannot be told."""

Faster = Callable[[Program], Program]


@dataclass(frozen=True)
class Pace:
    """The resources of a step, and the one that sets its pace."""

    limits: Sequence[LimitRow] = ()
    pace: Resource | Literal["balanced", "unknown"] = "unknown"
    between: Sequence[Resource] = ()


@dataclass(frozen=True, eq=False)
class Exchange:
    """A device's step with its collectives: what of them is transfer only the other ranks show. It can be pickled."""

    step: UnprofiledStep
    kinds: Sequence[Kind]
    number: NDArray[np.int64]
    """Of each operation its collective's kind, or -1."""
    copies: NDArray[np.bool_]
    """Copies between devices, which wait for nobody."""

    def saved(self, shortest: Shortest) -> Sequence[float] | None:
        """What the step saves with transfers twice as fast, as in `Savings`.

        None where more than a tenth of its collectives were seen on this device alone.

        Args:
            shortest: The collectives of all recordings.
        """
        transfer, devices = np.array([shortest[kind] for kind in self.kinds]).T
        ns = self.step.recorded.duration_ns
        chosen = (self.number >= 0) & ~self.copies
        if ns[chosen & (devices[self.number] < 2)].sum() > _ALONE * ns[chosen].sum():
            return None
        saved = np.where(chosen, transfer[self.number], np.where(self.copies, ns, 0)) // 2
        return _savings(
            self.step,
            lambda program: replace(program, duration_ns=np.maximum(program.duration_ns - saved, 0)),
        )


def exchange_of(view: TraceView, step: UnprofiledStep) -> Exchange | None:
    """The collectives and peer copies of a step; None without any, or where its replay is too far off."""
    kinds, number = kinds_of(view, step.recorded)
    if not step.is_understood or not (number >= 0).any():
        return None
    copies = view.trace.operations.kind[step.recorded.row] == OperationKind.COPY
    return Exchange(step, kinds, number, copies & (number >= 0))


def savings_of(view: TraceView, step: UnprofiledStep) -> Savings | None:
    """What the step of a device would save with each resource twice as fast; None where its replay is too far off.

    Of communication only all recordings together tell: see `Exchange`.
    """
    if not step.is_understood:
        return None
    return {resource: _savings(step, faster) for resource, faster in _faster(view, step.recorded).items()}


def _savings(step: UnprofiledStep, faster: Faster) -> Sequence[float]:
    saved = [
        _saved(program, faster(program), length) * step.scale for program, length in step.played.values()
    ]
    return saved if len(saved) == 3 else saved * 3  # A measured step has one host.


def _saved(program: Program, faster: Program, length_ns: float) -> float:
    return 0.0 if faster is program else max(length_ns - replay(faster).step_ns, 0.0)


def pace_of(savings: Savings | None, step_ns: float) -> Pace:
    """The rows of ``limits[]``, and what sets the pace: it saves a tenth of the step, with a fast and a slow host too.

    Args:
        savings: What each resource saves; None where nothing can be told.
        step_ns: The step without a profiler.
    """
    if savings is None or not savings:
        return Pace()
    known = {resource: saved for resource, saved in savings.items() if saved is not None}
    rows = [
        LimitRow(
            resource=resource,
            saving_if_twice_as_fast_ns=Interval(low=min(saved), likely=saved[1], high=max(saved)),
        )
        for resource, saved in sorted(known.items(), key=lambda each: -each[1][1])
    ]
    rows += [
        LimitRow(resource=resource, saving_if_twice_as_fast_ns=None)
        for resource, saved in savings.items()
        if saved is None
    ]
    order = [row.resource for row in rows if row.saving_if_twice_as_fast_ns is not None]
    first, *others = order
    ahead = [max(order, key=lambda resource: known[resource][at]) for at in (0, 2)]
    rival = next((resource for resource in ahead if resource != first), None)
    if rival is None and known[first][1] >= _SETS_THE_PACE * step_ns:
        return Pace(rows, first)
    return Pace(rows, "balanced", [first, rival or others[0]])


def _faster(view: TraceView, recorded: Program) -> Mapping[Resource, Faster]:
    """Each resource but communication twice as fast, as a change of any program of the step."""
    bound = view.work.bound[recorded.row]
    return {
        "compute": _half_durations(bound == OperationBound.COMPUTE),
        "memory": _half_durations(bound == OperationBound.MEMORY),
        "device_overhead": _half_overhead(bound == OperationBound.OVERHEAD),
        "host": _half_host,
        "input": _half_input,
        "transfer": _half_durations(bound == OperationBound.TRANSFER),
    }


def _half_durations(chosen: NDArray[np.bool_]) -> Faster:
    if not chosen.any():
        return _the_same
    return lambda program: replace(
        program, duration_ns=np.where(chosen, program.duration_ns // 2, program.duration_ns)
    )


def _the_same(program: Program) -> Program:
    return program


def _half_overhead(small: NDArray[np.bool_]) -> Faster:
    def faster(program: Program) -> Program:
        return replace(
            _half_durations(small)(program),
            lead_ns=program.lead_ns // 2,
            latency_ns=program.latency_ns // 2,
        )

    return faster


def _half_host(program: Program) -> Program:
    """All host time but data fetching, the profiler's, and what a wait takes."""
    own = np.where(program.kind == LAUNCH, program.own_ns // 2, program.own_ns)
    fixed = np.minimum(program.input_ns + program.profiler_ns, program.gap_ns)
    return replace(program, gap_ns=fixed + (program.gap_ns - fixed) // 2, own_ns=own)


def _half_input(program: Program) -> Program:
    fetching = np.minimum(program.input_ns, program.gap_ns)
    if not fetching.any():
        return program
    return replace(program, gap_ns=program.gap_ns - fetching // 2, input_ns=program.input_ns // 2)
