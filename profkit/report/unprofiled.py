"""The step without a profiler: its length, its shares and what sets its pace, of one device and over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from itertools import count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.names import RESOURCES, Resource
from profkit.model.report_kernels import FusionRow
from profkit.model.report_verdict import Step
from profkit.model.rows import Interval, replace
from profkit.model.states import State
from profkit.simulation.exchanged import Shortest
from profkit.simulation.flop_use import FlopUse, flop_use
from profkit.simulation.fusion_chains import fusion_rows
from profkit.simulation.job_step import Length, mean_length, recorded_states, step_length, weakest
from profkit.simulation.kernel_facts import find_facts
from profkit.simulation.pace import Exchange, Pace, Savings, exchange_of, pace_of, savings_of
from profkit.simulation.unprofiled import Source, unprofiled_step
from profkit.timeline.view import TraceView

__all__ = ["DeviceStep", "UnprofiledSteps", "device_steps", "with_few_exchanges"]

_MOVED_FROM: Final = (State.HOST, State.QUEUE, State.SYNC, State.INPUT)
"""Where the profiler's time is taken from, in this order: launch, then sync, then input (design, section 2)."""

_MOST_EXCHANGES: Final = 8
"""The communication of so many devices is replayed: the ranks of one program do the same."""


@dataclass(frozen=True, eq=False)
class DeviceStep:
    """The median step of a device, as recorded and without a profiler."""

    length_ns: Interval
    """Without a profiler."""
    source: Source
    states_ns: NDArray[np.int64]
    """The step without a profiler by `State`; they add up to ``length_ns.likely``."""
    savings: Savings | None
    """What it would save with each resource twice as fast, but communication."""
    exchange: Exchange | None = None
    """Its collectives; None without any, and beyond the first devices that have some."""
    flop: FlopUse | None = None
    """What its products would take at the GPU's peak."""
    fusion: Sequence[FusionRow] = ()
    """Chains of its kernels that one could do."""


def device_steps(view: TraceView) -> list[DeviceStep]:
    """The step of each device of a trace; none where there are no steps."""
    if not view.steps.count or not view.has_timeline:
        return []
    return [_device_step(view, device) for device in range(len(view.trace.devices))]


def _device_step(view: TraceView, device: int) -> DeviceStep:
    replayed = unprofiled_step(view, device)
    states = recorded_states(view, device, replayed)
    length, source = step_length(view, states, replayed)
    facts = None if replayed is None else find_facts(view, device, replayed.recorded)
    return DeviceStep(
        length_ns=length,
        source=source,
        states_ns=_without_profiler(states, round(length.likely), named=source != "recorded"),
        savings=None if replayed is None else savings_of(view, replayed),
        exchange=None if replayed is None else exchange_of(view, replayed),
        flop=None if facts is None else flop_use(facts),
        fusion=() if facts is None else fusion_rows(facts),
    )


def with_few_exchanges(steps: Sequence[DeviceStep]) -> list[DeviceStep]:
    """Some steps, of which only the first have their collectives: what is not replayed need not be kept."""
    had = count(1)
    return [
        step if step.exchange is None or next(had) <= _MOST_EXCHANGES else with_fields(step, exchange=None)
        for step in steps
    ]


def _without_profiler(states: NDArray[np.int64], length_ns: int, *, named: bool) -> NDArray[np.int64]:
    """The time of a step by state, without what is beyond its length.

    That is the profiler's own idle time, then idle time of the states that a slow host makes longer, in their order;
    what is still beyond, or lacks, is spread over all.

    Args:
        states: As recorded.
        length_ns: Without a profiler.
        named: Whether the step is without its profiler: then no time of it is the profiler's.
    """
    left = states.astype(np.int64).copy()
    if named:
        left[State.PROFILER] = 0
    for state in _MOVED_FROM:
        left[state] -= min(int(left[state]), max(int(left.sum()) - length_ns, 0))
    return _spread(left, length_ns)


def _spread(parts: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Parts on another scale, in whole ns that add up to a total."""
    whole = int(parts.sum())
    if not whole:
        return parts
    upto = [each * total // whole for each in np.cumsum(parts).tolist()]
    spread: NDArray[np.int64] = np.array(upto, np.int64) - np.array([0, *upto[:-1]], np.int64)
    return spread


@dataclass(frozen=True, eq=False)
class UnprofiledSteps:
    """The steps of some devices without a profiler; those of several files add up."""

    steps: Sequence[DeviceStep] = ()
    recorded_ns: int | None = None
    """The median step as recorded, which stands for the unprofiled one where nothing better is known."""
    shortest: Shortest = field(default_factory=dict)
    """The collectives of all recordings."""

    @property
    def source(self) -> Source:
        """Where their length comes from: the weakest of the sources."""
        return weakest(self._lengths)

    @property
    def length_ns(self) -> Interval | None:
        """The mean over the devices."""
        return mean_length(self._lengths, self.recorded_ns)

    @property
    def _lengths(self) -> Sequence[Length]:
        return [(step.length_ns, step.source) for step in self.steps]

    @property
    def fusion(self) -> Sequence[FusionRow]:
        """The chains of the first step that has any: the ranks of one program do the same."""
        return next((step.fusion for step in self.steps if step.fusion), ())

    @property
    def states_ns(self) -> NDArray[np.int64] | None:
        """Their time by `State`, the mean over the devices."""
        length = self.length_ns
        if length is None:
            return None
        total = np.sum([step.states_ns for step in self.steps], axis=0)
        return _spread(total, round(length.likely))

    @property
    def pace(self) -> Pace:
        """What sets their pace; nothing of devices that could not be replayed well."""
        length = self.length_ns
        told = [step.savings for step in self.steps if step.savings is not None]
        if length is None or not told:
            return Pace()
        exchanges = [step.exchange.saved(self.shortest) for step in self.steps if step.exchange]
        savings = {**_mean(told), "communication": _mean_of(exchanges) if exchanges else [0.0] * 3}
        return pace_of({resource: savings[resource] for resource in RESOURCES}, length.likely)

    def of_step(self, step: Step | None) -> Step | None:
        """The row of the report's step, with its length without a profiler."""
        length = self.length_ns
        if step is None or length is None or step.recorded_ns is None:
            return step
        mfu, hfu = self._flop_use(length.likely)
        return replace(step, unprofiled_ns=length, source=self.source, mfu=mfu, hfu=hfu)

    def _flop_use(self, length_ns: float) -> tuple[float | None, float | None]:
        """MFU and HFU, the mean over the devices; None where one of them cannot tell."""
        found = [step.flop for step in self.steps]
        if not length_ns or any(each is None for each in found):
            return None, None
        known = [each for each in found if each is not None]
        model, every = np.mean([each.model_ns for each in known]), np.mean([each.all_ns for each in known])
        return float(model / length_ns), float(every / length_ns)


def _mean(told: Sequence[Savings]) -> dict[Resource, Sequence[float] | None]:
    """The mean saving over the devices."""
    return {resource: _mean_of([each[resource] for each in told]) for resource in told[0]}


def _mean_of(rows: Sequence[Sequence[float] | None]) -> Sequence[float] | None:
    """The mean over the devices; None where one of them cannot tell."""
    known = [row for row in rows if row is not None]
    mean: list[float] = np.mean(known, axis=0).tolist() if len(known) == len(rows) else []
    return mean or None
