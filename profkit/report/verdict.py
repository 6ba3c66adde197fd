"""The verdict: what holds the step up, as a sentence with its number, its runner-up and its confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.result import SHARES, Row
from profkit.model.states import State
from profkit.model.work import Basis
from profkit.timeline.view import TraceView
from profkit.timeline.window_table import shares_row, states_of
from profkit.units import duration_text, percent_text

__all__ = ["RUNNER_UP_WITHIN", "UNDECIDED", "Grounds", "verdict_on", "verdict_row"]

RUNNER_UP_WITHIN: Final = 0.10
"""A second share this close to the first is named (design, section 2)."""

UNDECIDED: Final = 0.5
"""Above this share of unclassified time, or of lost kernels, a file cannot decide."""

_SENTENCES: Final = {
    "compute": "{subject} is compute-bound: for {share} of {time}, the GPU runs kernels that arithmetic limits",
    "memory": "{subject} is memory-bound: for {share} of {time}, the GPU runs kernels that memory bandwidth limits",
    "launch": "{subject} is held up by launch overhead: {share} of {time}, {how}",
    "sync": "{subject} is held up by synchronisation: for {share} of {time}, the GPU is idle because the host had waited for it",
    "input": "{subject} is held up by its input: for {share} of {time}, the GPU is idle while the host fetches data",
    "host_work": "{subject} is held up by the host's other work: for {share} of {time}, the GPU is idle while the program works on the host and launches nothing",
    "communication": "{subject} is held up by communication: for {share} of {time}, the GPU only communicates",
    "transfer": "{subject} is held up by copies: for {share} of {time}, the GPU only copies to or from the host",
    "other": "{subject} is held up elsewhere: for {share} of {time} the GPU is idle, most of it because of {how}",
    "unclassified": "{share} of {time} goes to GPU work of unknown kind",
}

_HOW: Final = {
    State.HOST: "mostly the GPU waiting for the host's next launch",
    State.QUEUE: "mostly the moments between one tiny kernel and the next",
    State.SMALL_KERNELS: "mostly kernels too small to do more than start and end",
}
_CAUSES: Final = {
    State.INITIALISATION: "context creation and loading of code",
    State.ALLOCATION: "memory allocation (cudaMalloc, cudaFree)",
    State.COMPILATION: "compilation",
    State.CAPTURE: "capturing CUDA graphs",
    State.PROFILER: "the profiler itself",
    State.DEPENDENCY: "waiting for other streams, events or copies",
    State.TAIL: "what follows the last kernel",
    State.UNKNOWN: "idle time without a launch record to explain it",
}


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
    kineto: bool
    """Whether a file comes from torch.profiler."""

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
            steps=min((v.steps.count - v.first_kept for v in views if v.steps.count), default=None),
            devices=sum(len(v.trace.devices) for v in views),
            kineto=any(v.trace.source.format == "kineto" for v in views),
        )

    @classmethod
    def together(cls, parts: Sequence[Grounds]) -> Grounds:
        """Those of several files as one."""
        return cls(
            states=sum((p.states for p in parts), np.zeros(len(State), np.int64)),
            basis_ns=sum((p.basis_ns for p in parts), np.zeros(len(Basis), np.int64)),
            steps=min((p.steps for p in parts if p.steps is not None), default=None),
            devices=sum(p.devices for p in parts),
            kineto=any(p.kineto for p in parts),
        )


@dataclass(frozen=True)
class _Decision:
    states: NDArray[np.int64]
    shares: Mapping[str, int]
    total_ns: int


def verdict_row(views: Sequence[TraceView], *, plain_step_ns: int | None, undecided: str | None) -> Row:
    """The verdict over the devices of the report.

    Args:
        views: The traces, with their windows.
        plain_step_ns: The step without a profiler, where it is known.
        undecided: What to record instead, when the files cannot decide; else None.
    """
    return verdict_on(Grounds.of(views), plain_step_ns=plain_step_ns, undecided=undecided)


def verdict_on(grounds: Grounds, *, plain_step_ns: int | None, undecided: str | None) -> Row:
    """The verdict on these grounds; see `verdict_row`."""
    states = grounds.states
    decision = _Decision(states, shares_row(states), int(states.sum()))
    chosen = {**decision.shares, "other": decision.shares["other"] - int(states[State.PROFILER])}
    order = sorted(SHARES, key=lambda s: -chosen[s])
    bound = "unknown" if undecided or not decision.total_ns else order[0]
    basis = _basis(grounds)
    return {
        "bound": bound,
        "share": chosen[bound] / decision.total_ns if bound != "unknown" else 0.0,
        "confidence": max(basis, key=lambda b: basis[b]) if basis else "unknown",
        "sentence": _sentence(grounds, decision, chosen, bound, order[1], undecided),
        "shares": dict(decision.shares),
        "launch": {
            "host": int(states[State.HOST]),
            "queue": int(states[State.QUEUE]),
            "small_kernels": int(states[State.SMALL_KERNELS]),
        },
        "runner_up": _runner_up(decision, chosen, order) if bound != "unknown" else None,
        "basis_shares": basis,
        "instead": undecided,
        "caveats": _caveats(grounds, decision, bound, plain_step_ns),
    }


def _runner_up(decision: _Decision, chosen: Mapping[str, int], order: Sequence[str]) -> Row | None:
    first, second = (chosen[s] / decision.total_ns for s in order[:2])
    close = second > 0 and first - second <= RUNNER_UP_WITHIN
    return {"bound": order[1], "share": second} if close else None


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


def _basis(grounds: Grounds) -> dict[str, float]:
    """The share of busy kernel time that rests on each basis, best first."""
    time, total = grounds.basis_ns, int(grounds.basis_ns.sum())
    return {b.name.lower(): int(time[b]) / total for b in Basis if time[b]} if total else {}


def _sentence(
    grounds: Grounds,
    decision: _Decision,
    chosen: Mapping[str, int],
    bound: str,
    second: str,
    undecided: str | None,
) -> str:
    if bound == "unknown":
        return f"This recording cannot say what holds the step up: {undecided or 'no time was recorded'}."
    each = decision.total_ns / (grounds.steps or 1) / (grounds.devices or 1)
    subject, time = (
        ("The step", f"its {duration_text(each)}")
        if grounds.steps is not None
        else ("The recording", duration_text(each))
    )
    text = _SENTENCES[bound].format(
        subject=subject,
        time=time,
        share=percent_text(chosen[bound] / decision.total_ns),
        how=_how(decision, bound),
    )
    close = chosen[second] and (chosen[bound] - chosen[second]) / decision.total_ns <= RUNNER_UP_WITHIN
    return (
        f"{text}; {second} is close behind with {percent_text(chosen[second] / decision.total_ns)}."
        if close
        else f"{text}."
    )


def _how(decision: _Decision, bound: str) -> str:
    among: Mapping[State, str] = (
        _HOW if bound == "launch" else {c: t for c, t in _CAUSES.items() if c is not State.PROFILER}
    )
    return among[max(among, key=lambda s: int(decision.states[s]))]


def _caveats(grounds: Grounds, decision: _Decision, bound: str, plain_step_ns: int | None) -> list[str]:
    # What a slower host makes longer; allocation, compilation and copies are not the recorder's doing.
    late = sum(int(decision.states[s]) for s in (State.HOST, State.SYNC, State.INPUT))
    mostly_idle = late * 2 > decision.total_ns
    # torch.profiler slows every operator down: on one GPT step, idle 11 % became 43 % (docs/numbers.md).
    kineto = bound in ("launch", "sync", "input") and grounds.kineto
    if plain_step_ns is not None or not decision.total_ns or not (mostly_idle or kineto):
        return []
    return [
        "Recording slows the host down, so part of the idle time may be the profiler's own cost. "
        "Give the step time without a profiler (--plain-step) to tell them apart."
    ]
