"""What each block was for: parameters, gradients, optimizer state, activations, temporaries, workspace, unknown.

Rules, the first that applies. *Stretches* are the times in which the program was in a backward pass or in an
optimizer step: as annotated, else as the stacks of the allocations say.

1. ``workspace``: allocated inside cuBLAS' or cuDNN's workspace code, where stacks have C++ frames. Else a block
   of one of cuBLAS' default workspace sizes that its stack allocated once on its stream and that was never freed.
2. Allocated in an optimizer: ``optimizer_state`` when it outlives that step, else ``temporary``.
3. Allocated in a backward pass: ``gradient`` when it outlives that pass, else ``temporary``. An allocation
   without a Python stack, in a history where others have one, comes from autograd's own thread.
4. Allocated while a module is built or moved (``__init__``, ``_apply``, ``reset_parameters``) and kept past the
   next stretch or to the end: ``parameter``.
5. Allocated elsewhere and freed in a later backward pass: ``activation``. So is what a module's forward
   allocated and that was freed after a backward pass began, or that no backward pass has seen yet (the history
   ends in a forward, or out of memory).
6. Freed before anything else began: ``temporary``.
7. There before the history, and as large as a gradient: as many as there are gradients of that size are parameters,
   the others ``optimizer_state``; those that are freed are gradients of the step before. What has the size of cuBLAS'
   workspaces is ``workspace``. All others: ``unknown``.

Snapshots that were made from a torch.profiler trace state the categories; those are taken as they are.
"""

from __future__ import annotations

import re
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from profkit.memory.owners import Mark, Owners
from profkit.memory.phase_memory import Stretches
from profkit.memory.replay import DeviceReplay, curve_of
from profkit.model import UNKNOWN, IntColumn
from profkit.model.memory_history import Action, MemoryHistory
from profkit.model.names import MemoryCategory

__all__ = [
    "ACTIVATION",
    "BACKWARD",
    "CATEGORIES",
    "GRADIENT",
    "OPTIMIZER",
    "OPTIMIZER_STATE",
    "PARAMETER",
    "TEMPORARY",
    "UNKNOWN_USE",
    "WORKSPACE",
    "WORKSPACE_BYTES",
    "activity_of",
    "categorise",
]

CATEGORIES: Final[tuple[MemoryCategory, ...]] = get_args(MemoryCategory)
PARAMETER, GRADIENT, OPTIMIZER_STATE, ACTIVATION, TEMPORARY, WORKSPACE, UNKNOWN_USE = range(len(CATEGORIES))

WORKSPACE_BYTES = (8_519_680, 33_554_432)
"""``:4096:2:16:8`` before Hopper, 32 MiB since (aten/src/ATen/cuda/CublasHandlePool.cpp)."""

_ELSEWHERE, BACKWARD, OPTIMIZER = range(3)
_BACKWARD_NAME = re.compile(r"(?:.*[^a-z])?(?:backward|bwd)(?:[^a-z].*)?", re.IGNORECASE)
_OPTIMIZER_NAME = re.compile(r"(?:.*[^a-z])?(?:optimi[sz]er|opt)(?:[^a-z].*)?", re.IGNORECASE)
_STATED = {
    "parameter": PARAMETER,
    "gradient": GRADIENT,
    "optimizer_state": OPTIMIZER_STATE,
    "optimizer state": OPTIMIZER_STATE,
    "activation": ACTIVATION,
    "temporary": TEMPORARY,
    "autograd_detail": TEMPORARY,
    "autograd detail": TEMPORARY,
}


def categorise(
    history: MemoryHistory, replayed: DeviceReplay, activity: NDArray[np.int64], owners: Owners
) -> NDArray[np.int64]:
    """The index in `CATEGORIES` of each lifetime of a replay, given its `activity_of` events."""
    lives = replayed.lifetimes
    end = len(replayed.events) + 1
    native = np.append(_native(replayed), False)
    # States are one longer than events: what is true of event k holds for state k + 1.
    changed = np.flatnonzero(activity[1:] != activity[:-1]) + 1
    born = np.clip(lives.allocated - 1, 0, None)
    died = np.clip(lives.freed - 1, 0, None)
    began, ended = np.searchsorted(changed, born, "right"), np.searchsorted(changed, died, "right")
    kept = (lives.freed >= end) | (ended > began)
    traced = lives.allocated > 0
    marks = owners.marks[lives.stack]
    in_backward = traced & (_has(marks, Mark.BACKWARD) | native[born] | (_at(activity, born) == BACKWARD))
    in_optimizer = _has(marks, Mark.OPTIMIZER) | (traced & (_at(activity, born) == OPTIMIZER))
    backward_end = traced & (lives.freed < end) & (_at(activity, died) == BACKWARD) & (ended > began)
    backward = _next_backward(activity, born)
    seen = (lives.freed < end) & (lives.freed > backward)
    unseen = (lives.freed >= end) & (backward >= end)
    forward = traced & (seen | unseen) & _has(marks, Mark.MODULE_CALL)
    built = _has(marks, Mark.INITIALISER) & ~_has(marks, Mark.MODULE_CALL) & (kept | ~traced)
    rules: list[tuple[NDArray[np.bool_], Any]] = [
        (_has(marks, Mark.WORKSPACE) | _like_workspace(replayed), WORKSPACE),
        (in_optimizer & ~in_backward, np.where(kept, OPTIMIZER_STATE, TEMPORARY)),
        (in_backward, np.where(kept, GRADIENT, TEMPORARY)),
        (built, PARAMETER),
        (backward_end | forward, ACTIVATION),
        (traced & ~kept, TEMPORARY),
    ]
    found: NDArray[np.int64] = np.select(
        [rule for rule, _ in rules], [np.broadcast_to(use, traced.shape) for _, use in rules], UNKNOWN_USE
    )
    found = _from_before(lives.requested, lives.allocated, found, lives.freed)
    return _stated(history, replayed, found)


def _from_before(
    requested: IntColumn, allocated: IntColumn, use: NDArray[np.int64], freed: IntColumn
) -> NDArray[np.int64]:
    """Tell parameters, gradients and optimizer state apart among blocks that the history did not see being allocated.

    A gradient is as large as its parameter, and so is each tensor of an optimizer's state.
    """
    found = use.copy()
    end = int(freed.max(initial=0))
    unseen = (allocated == 0) & (use == UNKNOWN_USE) & (freed > 0)
    gradients = use == GRADIENT
    for size in np.unique(requested[gradients]).tolist():
        mine = gradients & (requested == size)
        at_once = int(
            curve_of(np.ones(int(mine.sum()), np.int64), allocated[mine], freed[mine], end + 1).max()
        )
        sized = unseen & (requested == size)
        stays = freed >= end
        if (sized & stays).sum() >= at_once:
            found[sized & ~stays] = GRADIENT
            sized &= stays
        rows = np.flatnonzero(sized)
        found[rows[:at_once]] = PARAMETER
        found[rows[at_once:]] = OPTIMIZER_STATE
    unseen &= found == UNKNOWN_USE
    found[unseen & np.isin(requested, WORKSPACE_BYTES)] = WORKSPACE
    return found


def _like_workspace(replayed: DeviceReplay) -> NDArray[np.bool_]:
    """Blocks that look like cuBLAS' workspaces: of a default size, made once, never freed."""
    lives = replayed.lifetimes
    sized = np.isin(lives.requested, WORKSPACE_BYTES) & (lives.allocated > 0)
    rows = np.flatnonzero(sized)
    made_by = np.stack([lives.stack[rows], lives.stream[rows], lives.requested[rows]])
    _, inverse, counts = np.unique(made_by, axis=1, return_inverse=True, return_counts=True)
    sized[rows] = counts[inverse.reshape(-1)] == 1
    sized &= lives.freed > len(replayed.events)
    return sized


def _stated(history: MemoryHistory, replayed: DeviceReplay, found: NDArray[np.int64]) -> NDArray[np.int64]:
    written = replayed.lifetimes.category
    for string in np.unique(written[written != UNKNOWN]).tolist():
        use = _STATED.get((history.text(string) or "").lower())
        if use is not None:
            found = np.where(written == string, use, found)
    return found


def _has(marks: NDArray[np.int64], mark: Mark) -> NDArray[np.bool_]:
    marked: NDArray[np.bool_] = (marks & int(mark)) != 0
    return marked


def _at(activity: NDArray[np.int64], events: IntColumn) -> NDArray[np.int64]:
    last = max(len(activity) - 1, 0)
    return activity[np.minimum(events, last)] if len(activity) else np.zeros(len(events), np.int64)


def _native(replayed: DeviceReplay) -> NDArray[np.bool_]:
    """Allocations without a stack in a history that has stacks: made by a thread without Python frames."""
    events = replayed.events
    allocates = events.action == Action.ALLOC
    bare = allocates & (events.stack == UNKNOWN)
    if not (allocates & ~bare).any():
        bare = np.zeros(len(events), bool)
    native: NDArray[np.bool_] = bare
    return native


def activity_of(replayed: DeviceReplay, stretches: Stretches, owners: Owners) -> NDArray[np.int64]:
    """For each event whether the program was in a backward pass (`BACKWARD`), in an optimizer step, or elsewhere."""
    events = replayed.events
    allocates = events.action == Action.ALLOC
    seen = np.full(len(events), -1, np.int64)
    seen[allocates] = _ELSEWHERE
    seen[allocates & owners.marked(events.stack, Mark.OPTIMIZER)] = OPTIMIZER
    seen[allocates & (owners.marked(events.stack, Mark.BACKWARD) | _native(replayed))] = BACKWARD
    last = np.maximum.accumulate(np.where(seen >= 0, np.arange(len(seen)), -1)) if len(seen) else seen
    activity = np.where(last >= 0, seen[last], _ELSEWHERE)
    phases = stretches.phases
    for name, label in ((_BACKWARD_NAME, BACKWARD), (_OPTIMIZER_NAME, OPTIMIZER)):
        named = [phase for phase in phases if name.fullmatch(phase.path.rpartition("/")[2])]
        if named:  # where there are annotations, they know better than stacks where it began and ended
            annotated = activity[min(phase.first for phase in named) : max(phase.last for phase in named)]
            annotated[annotated == label] = _ELSEWHERE
        for phase in named:
            activity[phase.first : phase.last] = label
    for step in stretches.optimizer:
        activity[step.first : step.last] = OPTIMIZER
    return activity


def _next_backward(activity: NDArray[np.int64], events: IntColumn) -> NDArray[np.int64]:
    """The first event in a backward pass after each event; one past the end when there is none."""
    backward = np.append(np.flatnonzero(activity == BACKWARD), len(activity) + 1)
    return backward[np.searchsorted(backward[:-1], events, "right")]
