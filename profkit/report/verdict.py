"""The verdict: what limits the step, with its share, its runner-up and its confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.findings import Fact
from profkit.model.names import SHARES, IdleCause, LaunchPart, ShareBound, ShareName
from profkit.model.names import Basis as BasisName
from profkit.model.report_verdict import LaunchTimes, RunnerUp, Verdict
from profkit.model.states import State
from profkit.model.work import Basis
from profkit.readers.registry import role_of
from profkit.report.unprofiled import UnprofiledSteps
from profkit.timeline.view import TraceView
from profkit.timeline.window_table import shares_row, states_of

__all__ = ["RUNNER_UP_WITHIN", "UNDECIDED", "Grounds", "verdict_on"]

RUNNER_UP_WITHIN: Final = 0.10
"""A second share this close to the first is named (design, section 2)."""

_NOTABLE: Final = 0.05
"""A recorder's cost under this share of the step is not worth a sentence."""

UNDECIDED: Final = 0.5
"""Above this share of unclassified time, or of lost kernels, a file cannot decide."""

_CAUSES: Final[Mapping[str, Mapping[State, LaunchPart | IdleCause]]] = {
    "launch": {State.HOST: "host", State.QUEUE: "queue", State.SMALL_KERNELS: "small_kernels"},
    # Not the profiler's time, which is no verdict on the program.
    "other": {
        State.INITIALISATION: "initialisation",
        State.ALLOCATION: "allocation",
        State.COMPILATION: "compilation",
        State.CAPTURE: "capture",
        State.DEPENDENCY: "dependency",
        State.TAIL: "tail",
        State.UNKNOWN: "unknown",
    },
}
"""What the shares consist of that have several causes."""


@dataclass(frozen=True, eq=False)
class Grounds:
    """What a verdict rests on; the grounds of several files add up."""

    states: NDArray[np.int64]
    """The window's time in each `State`, in ns, over the devices."""
    basis_ns: NDArray[np.int64]
    """Busy kernel time by `Basis`."""
    steps: int | None
    """Kept steps; the fewest of the files that have steps."""
    devices: int
    slow_host: bool
    """Whether a recorder slows the host, as torch.profiler does."""

    @classmethod
    def of(cls, views: Sequence[TraceView]) -> Grounds:
        """Those of some traces."""
        states = np.zeros(len(State), np.int64)
        for view in views:
            for device in range(len(view.trace.devices)):
                states += states_of(view, device)
        return cls(
            states=states,
            basis_ns=_basis_ns(views),
            steps=min((v.kept_count for v in views if v.steps.count), default=None),
            devices=sum(len(v.trace.devices) for v in views),
            slow_host=any(role_of(v.trace.source.format) == "operators" for v in views),
        )

    @classmethod
    def together(cls, parts: Sequence[Grounds]) -> Grounds:
        """Those of several files as one."""
        return cls(
            states=sum((p.states for p in parts), np.zeros(len(State), np.int64)),
            basis_ns=sum((p.basis_ns for p in parts), np.zeros(len(Basis), np.int64)),
            steps=min((p.steps for p in parts if p.steps is not None), default=None),
            devices=sum(p.devices for p in parts),
            slow_host=any(p.slow_host for p in parts),
        )


@dataclass(frozen=True)
class _Decision:
    states: NDArray[np.int64]
    shares: Mapping[ShareName, int]
    total_ns: int

    @classmethod
    def of(cls, states: NDArray[np.int64]) -> _Decision:
        by_share = shares_row(states)
        return cls(states, {name: by_share.get(name, 0) for name in SHARES}, int(states.sum()))

    @property
    def chosen(self) -> Mapping[ShareName, int]:
        """The shares without the profiler's time, which is no verdict on the program."""
        return {**self.shares, "other": self.shares["other"] - int(self.states[State.PROFILER])}

    @property
    def order(self) -> Sequence[ShareName]:
        """The shares, the largest first."""
        chosen = self.chosen
        return sorted(chosen, key=lambda s: -chosen[s])

    def share(self, name: ShareName) -> float:
        """A part of the whole."""
        return self.chosen[name] / self.total_ns


_NO_STEPS: Final = UnprofiledSteps()


def verdict_on(
    grounds: Grounds,
    *,
    undecided: Fact | None,
    unprofiled: UnprofiledSteps = _NO_STEPS,
) -> Verdict:
    """The verdict on these grounds: of the step without a profiler where there are steps, else of the window.

    Args:
        grounds: What it rests on.
        undecided: Why the files cannot decide; None when they can.
        unprofiled: The steps without a profiler.
    """
    recorded, states = _Decision.of(grounds.states), unprofiled.states_ns
    judged = recorded if states is None else _Decision.of(states)
    known = undecided is None and bool(judged.total_ns)
    bound: ShareBound = judged.order[0] if known else "unknown"
    basis = _basis(grounds)
    best: BasisName = max(basis, key=lambda b: basis[b]) if basis else "unknown"
    runner_up = _runner_up(judged) if known else None
    return Verdict(
        bound=bound,
        share=judged.share(bound) if bound != "unknown" else 0.0,
        confidence="low" if runner_up is not None else best,
        shares=dict(recorded.shares),
        launch=LaunchTimes(
            host=int(grounds.states[State.HOST]),
            queue=int(grounds.states[State.QUEUE]),
            small_kernels=int(grounds.states[State.SMALL_KERNELS]),
        ),
        basis_shares=basis,
        runner_up=runner_up,
        recorded_bound=recorded.order[0] if known else "unknown",
        unprofiled_shares=None if states is None else dict(judged.shares),
        cause=_cause(judged, bound),
        step_count=grounds.steps,
        device_count=grounds.devices,
        undecided=undecided,
        doubts=_estimated(recorded, unprofiled)
        if known and unprofiled.source == "estimated"
        else _slowed(grounds, recorded, bound, unprofiled),
    )


def _runner_up(decision: _Decision) -> RunnerUp | None:
    first, second = (decision.share(name) for name in decision.order[:2])
    close = second > 0 and first - second <= RUNNER_UP_WITHIN
    return RunnerUp(bound=decision.order[1], share=second) if close else None


def _basis_ns(views: Sequence[TraceView]) -> NDArray[np.int64]:
    time = np.zeros(len(Basis), np.int64)
    for view in views:
        for device in range(len(view.trace.devices)):
            segments = view.window_segments(device)
            busy = segments.state <= State.UNCLASSIFIED
            np.add.at(
                time, view.work.basis[segments.operation[busy]], (segments.end_ns - segments.start_ns)[busy]
            )
    return time


def _basis(grounds: Grounds) -> dict[BasisName, float]:
    """The share of busy kernel time that rests on each basis, best first."""
    time, total = grounds.basis_ns, int(grounds.basis_ns.sum())
    names: Sequence[BasisName] = [b.name.lower() for b in Basis]  # type: ignore[misc] # the same names, as a Literal
    return (
        {name: int(time[b]) / total for b, name in zip(Basis, names, strict=True) if time[b]} if total else {}
    )


def _cause(decision: _Decision, bound: str) -> LaunchPart | IdleCause | None:
    among = _CAUSES.get(bound)
    return among[max(among, key=lambda s: int(decision.states[s]))] if among else None


def _estimated(recorded: _Decision, unprofiled: UnprofiledSteps) -> list[Fact]:
    """How far the step may be off, and what was recorded, where the one or the other matters."""
    length, recorded_ns = unprofiled.length_ns, unprofiled.recorded_ns
    if (
        length is None
        or recorded_ns is None
        or max(length.high - length.low, abs(recorded_ns - length.likely)) <= (_NOTABLE * length.likely)
    ):
        return []
    facts = {"low_ns": round(length.low), "high_ns": round(length.high), "recorded_ns": recorded_ns}
    return [Fact("step-estimated", {**facts, "recorded_bound": recorded.order[0]})]


def _slowed(grounds: Grounds, recorded: _Decision, bound: str, unprofiled: UnprofiledSteps) -> list[Fact]:
    # What a slower host makes longer; allocation, compilation and copies are not the recorder's doing.
    late = sum(int(recorded.states[s]) for s in (State.HOST, State.SYNC, State.INPUT))
    mostly_idle = late * 2 > recorded.total_ns
    # torch.profiler slows every operator down: on one GPT step, idle 11 % became 43 % (docs/numbers.md).
    slowed = (
        bound in ("launch", "sync", "input") and grounds.slow_host and late > _NOTABLE * recorded.total_ns
    )
    if unprofiled.source == "measured" or not recorded.total_ns or not (mostly_idle or slowed):
        return []
    return [Fact("profiler-slows-host")]
