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
from profkit.timeline.view import TraceView
from profkit.timeline.window_table import shares_row, states_of

__all__ = ["RUNNER_UP_WITHIN", "UNDECIDED", "Grounds", "verdict_on", "verdict_row"]

RUNNER_UP_WITHIN: Final = 0.10
"""A second share this close to the first is named (design, section 2)."""

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


def verdict_row(views: Sequence[TraceView], *, plain_step_ns: int | None, undecided: Fact | None) -> Verdict:
    """The verdict over the devices of the report.

    Args:
        views: The traces, with their windows.
        plain_step_ns: The step without a profiler, where it is known.
        undecided: Why the files cannot decide; None when they can.
    """
    return verdict_on(Grounds.of(views), plain_step_ns=plain_step_ns, undecided=undecided)


def verdict_on(grounds: Grounds, *, plain_step_ns: int | None, undecided: Fact | None) -> Verdict:
    """The verdict on these grounds; see `verdict_row`."""
    states = grounds.states
    by_share = shares_row(states)
    decision = _Decision(states, {name: by_share.get(name, 0) for name in SHARES}, int(states.sum()))
    chosen = {**decision.shares, "other": decision.shares["other"] - int(states[State.PROFILER])}
    order = sorted(chosen, key=lambda s: -chosen[s])
    known = undecided is None and bool(decision.total_ns)
    bound: ShareBound = order[0] if known else "unknown"
    basis = _basis(grounds)
    best: BasisName = max(basis, key=lambda b: basis[b]) if basis else "unknown"
    return Verdict(
        bound=bound,
        share=chosen[order[0]] / decision.total_ns if known else 0.0,
        confidence=best,
        shares=dict(decision.shares),
        launch=LaunchTimes(
            host=int(states[State.HOST]),
            queue=int(states[State.QUEUE]),
            small_kernels=int(states[State.SMALL_KERNELS]),
        ),
        basis_shares=basis,
        runner_up=_runner_up(decision, chosen, order) if known else None,
        recorded_bound=bound,
        cause=_cause(decision, bound),
        step_count=grounds.steps,
        device_count=grounds.devices,
        undecided=undecided,
        doubts=_doubts(grounds, decision, bound, plain_step_ns),
    )


def _runner_up(
    decision: _Decision, chosen: Mapping[ShareName, int], order: Sequence[ShareName]
) -> RunnerUp | None:
    first, second = (chosen[s] / decision.total_ns for s in order[:2])
    close = second > 0 and first - second <= RUNNER_UP_WITHIN
    return RunnerUp(bound=order[1], share=second) if close else None


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


def _doubts(grounds: Grounds, decision: _Decision, bound: str, plain_step_ns: int | None) -> list[Fact]:
    # What a slower host makes longer; allocation, compilation and copies are not the recorder's doing.
    late = sum(int(decision.states[s]) for s in (State.HOST, State.SYNC, State.INPUT))
    mostly_idle = late * 2 > decision.total_ns
    # torch.profiler slows every operator down: on one GPT step, idle 11 % became 43 % (docs/numbers.md).
    slowed = bound in ("launch", "sync", "input") and grounds.slow_host
    if plain_step_ns is not None or not decision.total_ns or not (mostly_idle or slowed):
        return []
    return [Fact("profiler-slows-host")]
