"""What autocast did in a step: what it keeps in fp32, the casts that it added, and what is an accident.

A program is judged where a recording shows that autocast was used: an operator of its lists is recorded inside itself,
in 16 bits. Of a program that multiplies in 16 bits by itself only operands that widen others are told. Without types of
operators nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Set
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profkit.model.report_precision import Autocast, AutocastOperator, Cast
from profkit.model.rows import replace
from profkit.model.summing import Summed
from profkit.roofline.autocast_calls import SIXTEEN_BITS, Calls, Casts, bare
from profkit.roofline.autocast_lists import (
    LOSSES,
    LOWER,
    NORMS,
    NORMS_CAST,
    PROMOTE,
    PROMOTING,
    losses_and_norms,
)
from profkit.roofline.operator_shapes import Tensor
from profkit.timeline.call_sites import frame_text, frames_at
from profkit.timeline.once import once_a_view
from profkit.timeline.phases import phase_at
from profkit.timeline.range_tables import device_time
from profkit.timeline.view import TraceView

__all__ = ["autocast_rows", "autocast_together", "shown_autocast"]

Column = NDArray[np.int64]

_OPERATORS: Final = Summed[AutocastOperator](
    ("name", "code", "by_design", "phase", "where", "takes"), ("ns", "count")
)
_MOST_ROWS: Final = 200
_LAYS_OUT: Final = frozenset(
    ["to", "_to_copy", "copy_", "empty_strided", "empty", "transpose", "t", "view", "_unsafe_view", "reshape", "_reshape_alias",
     "permute", "movedim", "expand", "unsqueeze", "squeeze", "flatten", "unflatten", "contiguous", "clone", "chunk", "split",
     "unbind", "narrow", "slice", "select", "as_strided", "detach", "alias"]
)  # fmt: skip
"""Operators that compute nothing: what lies between a cast and the operator that takes its result."""
_NARROW: Final = sorted(SIXTEEN_BITS)
_BITS: Final = {"bf16": 16, "fp16": 16, "fp32": 32, "fp64": 64}
_ONLY_FORWARD: Final = frozenset(
    {"linear", "conv1d", "conv2d", "conv3d", "scaled_dot_product_attention", *NORMS, *LOSSES}
)
"""Operators that a backward pass calls only where it runs a forward pass again."""


class _Seen(NamedTuple):
    """A row of `Trace.ranges` and what is said of it."""

    row: int
    code: Cast
    cost: tuple[int, ...]
    """The rows whose device time it costs."""
    takes: str = ""
    less: tuple[int, ...] = ()
    """Rows inside those that another accident costs."""


@once_a_view
def autocast_rows(view: TraceView) -> list[Autocast]:
    """What autocast did in a trace's window; empty where nothing computes in 16 bits, or where it has no types."""
    if not (view.trace.ranges.dtypes >= 0).any():
        return []
    calls = Calls(view)
    types = calls.region_types
    seen = list(_in_regions(calls, types) if types else _without_region(calls))
    if not (types or seen):
        return []
    casts = calls.casts
    added = (casts.wrapper >= 0) & bool(types)
    _, below = device_time(view)
    rows = _OPERATORS.rows(_operators(view, seen, below))
    return [
        Autocast(
            types=types,
            casts=int(added.sum()),
            casts_ns=int(below[casts.row[added]].sum()),
            fp32_by_design_ns=sum(row.ns for row in rows if row.by_design),
            fp32_by_accident_ns=sum(row.ns for row in rows if not row.by_design),
            operators=rows,
        )
    ]


def _in_regions(calls: Calls, types: list[str]) -> Iterator[_Seen]:
    twice = list(_norms_cast_twice(calls))
    yield from twice
    yield from _wrapped(calls, {each.row: each.cost[:1] for each in twice})
    yield from _wide_operands(calls)
    yield from _outside(calls)
    yield from _around_backward(calls)
    yield from _custom_backward(calls)
    yield from _by_hand(calls, types)
    yield from _undone(calls)
    yield from _weights_again(calls)


def _without_region(calls: Calls) -> Iterator[_Seen]:
    """Of a model whose own weights have 16 bits."""
    if any(calls.types(row) & SIXTEEN_BITS for row in _forward(calls, LOWER)):
        yield from _wide_operands(calls)


def autocast_together(parts: Iterable[Autocast]) -> Autocast | None:
    """What autocast did in several traces: accidents first, most time first; None where it was used in none."""
    found = list(parts)
    if not found:
        return None
    rows = _OPERATORS.rows(row for each in found for row in each.operators)
    counted = ("casts", "casts_ns", "fp32_by_design_ns", "fp32_by_accident_ns")
    return replace(
        found[0],
        types=sorted({t for each in found for t in each.types}),
        operators=sorted(rows, key=lambda r: (r.by_design, -r.ns, -r.count, r.name, r.code, r.takes)),
        **{name: sum(getattr(each, name) for each in found) for name in counted},
    )


def shown_autocast(parts: Iterable[Autocast]) -> Autocast | None:
    """The same with no more rows than a report keeps."""
    found = autocast_together(parts)
    return found and replace(found, operators=found.operators[:_MOST_ROWS])


def _operators(view: TraceView, seen: list[_Seen], below: Column) -> Iterator[AutocastOperator]:
    ranges, strings = view.trace.ranges, view.trace.strings
    row = np.array([each.row for each in seen], np.int64)
    thread, time = ranges.thread[row], ranges.start_ns[row].astype(np.int64)
    path = view.phases.path_of(phase_at(view.trace, view.phases, thread, time))
    frame = frames_at(view, thread, time)
    for each, at, line in zip(seen, path.tolist(), frame.tolist(), strict=True):
        phase = view.phases.paths[at] if at >= 0 else None
        if not view.shows(phase):
            continue
        yield AutocastOperator(
            name=strings[ranges.name[each.row]],
            code=each.code,
            by_design=each.code == "kept-in-fp32",
            phase=phase,
            where=frame_text(strings[line]) if line >= 0 else None,
            takes=each.takes,
            ns=int(below[list(each.cost)].sum() - below[list(each.less)].sum()),
            count=1,
        )


def _name(calls: Calls, row: int) -> str:
    return bare(calls.view.trace.strings[calls.view.trace.ranges.name[row]])


def _text(tensors: Iterable[Tensor]) -> str:
    return ", ".join(f"{tensor.dtype} {list(tensor.shape)}" for tensor in tensors)


def _wrapped(calls: Calls, cast_up: dict[int, tuple[int, ...]]) -> Iterator[_Seen]:
    """What autocast keeps in fp32 by its lists, and what it promoted since an operand was wider.

    Args:
        calls: The operators.
        cast_up: Of norms that are cast twice: the cast that is counted there.
    """
    casts = calls.casts
    raised = (casts.wrapper >= 0) & (casts.target == "fp32")
    shapes = {
        int(casts.wrapper[at]): f"{casts.source[at]} {list(casts.shape[at])}" for at in np.flatnonzero(raised)
    }
    for inner in calls.inner[calls.node[calls.inner] < 0].tolist():
        row = int(calls.parent[inner])
        name = _name(calls, row)
        if name in PROMOTE and row in shapes:
            yield _Seen(row, "promoted", (row,), shapes[row])
        elif name not in LOWER | PROMOTE:
            yield _Seen(row, "kept-in-fp32", (row,), less=cast_up.get(row, ()))


def _wide_operands(calls: Calls) -> Iterator[_Seen]:
    """Tensors that a smaller one of a wider type (a parameter, a buffer, a mask) widens."""
    for row in _forward(calls, PROMOTING):
        tensors = calls.inputs(row)
        bits = [_BITS.get(tensor.dtype or "", 0) for tensor in tensors]
        wide = [t for t, each in zip(tensors, bits, strict=True) if each == max(bits)]
        narrow = [t for t, each in zip(tensors, bits, strict=True) if 0 < each < max(bits)]
        largest = max((t.numel for t in narrow), default=0)
        if narrow and all(t.numel < largest and not _is_statistic(t, narrow) for t in wide):
            yield _Seen(row, "fp32-operand", (row,), _text(tensors))


def _is_statistic(tensor: Tensor, others: list[Tensor]) -> bool:
    """One value for each row of the others: a norm of them, or a weight of each token, and no parameter."""
    return tensor.shape[-1] == 1 and any(tensor.shape[:-1] == other.shape[:-1] for other in others)


def _forward(calls: Calls, names: frozenset[str]) -> list[int]:
    """Operators of the forward pass with these names that autocast neither wrapped nor ran."""
    chosen = np.flatnonzero(calls.operator & calls.named(lambda n: bare(n) in names) & ~calls.in_optimizer)
    chosen = chosen[(calls.node[chosen] < 0) & (calls.nearest(chosen, calls.wrapper) < 0)]
    rows: list[int] = chosen.tolist()
    return rows


def _outside(calls: Calls) -> Iterator[_Seen]:
    """Losses and norms that took 16 bits, and products that took fp32, where no region was open."""
    kept = losses_and_norms(gpu=calls.on_gpu)
    around = np.zeros(len(calls.parent), bool)
    row = calls.parent[np.flatnonzero(calls.wrapper)]
    while len(row):
        row = np.unique(row[row >= 0])
        around[row] = True
        row = calls.parent[row]
    names = kept | LOWER
    chosen = np.array([r for r in _forward(calls, names) if not around[r]], np.int64)
    for at in calls.outermost(chosen):
        tensors, name = calls.inputs(at), _name(calls, at)
        if name in kept and tensors and tensors[0].dtype in SIXTEEN_BITS:
            yield _Seen(at, "loss-outside" if name in LOSSES else "norm-outside", (at,), _text(tensors))
        elif name in LOWER and _multiplies_fp32(tensors):
            yield _Seen(at, "product-outside", (at,), _text(tensors))


def _multiplies_fp32(tensors: list[Tensor]) -> bool:
    """Two fp32 matrices; one with a side of 1 only scales or lays out the other."""
    matrices = [t for t in tensors if len(t.shape) >= 2]
    plain = all(t.dtype == "fp32" and min(t.shape[-2:]) > 1 for t in matrices)
    convolves = any(len(t.shape) >= 3 and math.prod(t.shape[1:]) > 1 for t in matrices)
    return len(matrices) >= 2 and (plain or (convolves and {t.dtype for t in matrices} == {"fp32"}))


def _around_backward(calls: Calls) -> Iterator[_Seen]:
    """Operators that autocast wrapped in the backward pass, but for a forward pass that is run again in it."""
    wrapped, own = np.flatnonzero(calls.wrapper), calls.own_function
    node = calls.node[wrapped]
    again = {
        n
        for n, row in zip(node.tolist(), wrapped.tolist(), strict=True)
        if _name(calls, row) in _ONLY_FORWARD
    }
    for at, row in zip(node.tolist(), wrapped.tolist(), strict=True):
        # What torch.amp.custom_bwd decorates opens the region of its forward pass by design.
        if at >= 0 and at not in again and not own[at]:
            yield _Seen(row, "around-backward", (row,))


def _custom_backward(calls: Calls) -> Iterator[_Seen]:
    """Products in fp32 in the backward pass of a function of the program's own, which autocast does not reach."""
    node, own = calls.node, calls.own_function
    again = set(node[np.flatnonzero(calls.wrapper)].tolist())
    rows = np.flatnonzero(calls.operator & calls.named(lambda n: bare(n) in LOWER) & (node >= 0))
    for row in calls.outermost(rows):
        if own[node[row]] and node[row] not in again and _multiplies_fp32(tensors := calls.inputs(row)):
            yield _Seen(row, "custom-backward", (row,), _text(tensors))


def _by_hand(calls: Calls, types: list[str]) -> Iterator[_Seen]:
    """Casts of the forward pass to the 16-bit type that autocast does not use, and weights that are in it."""
    casts, made = calls.casts, set()
    for at in np.flatnonzero((casts.wrapper < 0) & (calls.node[casts.row] < 0)).tolist():
        target, row = casts.target[at], int(casts.row[at])
        if target in SIXTEEN_BITS and target not in types and not calls.in_optimizer[row]:
            made.add(casts.shape[at])
            yield _Seen(row, "other-type-by-hand", (row,), _cast_text(casts, at))
    for at in _weight_casts(calls, SIXTEEN_BITS - set(types)).tolist():
        if casts.shape[at] not in made:
            row = int(casts.row[at])
            yield _Seen(int(casts.wrapper[at]), "other-type-by-hand", (row,), _cast_text(casts, at))


def _cast_text(casts: Casts, at: int) -> str:
    shape = list(casts.shape[at])
    return f"{casts.source[at]} {shape}, {casts.target[at]} {shape}"


def _undone(calls: Calls) -> Iterator[_Seen]:
    """Casts to fp32 by hand that autocast casts back before anything is computed with them."""
    casts, ranges = calls.casts, calls.view.trace.ranges
    raised = (casts.wrapper < 0) & (casts.target == "fp32") & np.isin(casts.source.astype(str), _NARROW)
    computing = np.flatnonzero(calls.operator & calls.named(lambda n: bare(n) not in _LAYS_OUT))
    computing = computing[np.lexsort((ranges.start_ns[computing], ranges.thread[computing]))]
    back: dict[int, list[int]] = {}
    for at in np.flatnonzero((casts.wrapper >= 0) & np.isin(casts.target.astype(str), _NARROW)).tolist():
        back.setdefault(int(casts.wrapper[at]), []).append(at)
    for at in np.flatnonzero(raised & (calls.node[casts.row] < 0)).tolist():
        row, around = int(casts.row[at]), int(calls.parent[casts.row[at]])
        # Operators of mixed types cast inside themselves.
        if around >= 0 and calls.view.trace.strings[ranges.name[around]].startswith("aten::"):
            continue
        mine = computing[ranges.thread[computing] == ranges.thread[row]]
        next_one = np.searchsorted(ranges.start_ns[mine], ranges.end_ns[row])
        for other in back.get(int(mine[next_one]), []) if next_one < len(mine) else []:
            if sorted(casts.shape[other]) == sorted(casts.shape[at]):
                cost = (row, int(casts.row[other]))
                yield _Seen(row, "cast-undone", cost, f"{casts.source[at]} {list(casts.shape[at])}")
                break


def _norms_cast_twice(calls: Calls) -> Iterator[_Seen]:
    """Norms whose 16-bit input autocast casts up, and whose result the next operator casts down again."""
    casts, start = calls.casts, calls.view.trace.ranges.start_ns
    added = np.flatnonzero(casts.wrapper >= 0)
    added = added[np.argsort(start[casts.row[added]], kind="stable")]
    for one, next_one in zip(added.tolist(), _next_wrapped(calls, added), strict=True):
        wrapper = int(casts.wrapper[one])
        up = casts.target[one] == "fp32" and _name(calls, wrapper) in NORMS_CAST
        first = calls.inputs(wrapper)[:1]
        if not up or not first or first[0].dtype == "fp32" or first[0].shape != casts.shape[one]:
            continue
        for other in next_one:
            if casts.target[other] in SIXTEEN_BITS and casts.shape[other] == casts.shape[one]:
                yield _Seen(
                    wrapper, "norm-cast-twice", (int(casts.row[one]), int(casts.row[other])), _text(first)
                )
                break


def _next_wrapped(calls: Calls, added: Column) -> Iterator[list[int]]:
    """Of each cast: the casts of the next wrapped operator of its thread that has any; casts are in order of time."""
    casts, thread = calls.casts, calls.view.trace.ranges.thread
    by_thread: dict[int, list[list[int]]] = {}
    for at in added.tolist():
        groups = by_thread.setdefault(int(thread[casts.row[at]]), [])
        if groups and casts.wrapper[groups[-1][0]] == casts.wrapper[at]:
            groups[-1].append(at)
        else:
            groups.append([at])
    follows: dict[int, list[int]] = {}
    for groups in by_thread.values():
        for group, after in zip(groups, [*groups[1:], []], strict=True):
            follows.update(dict.fromkeys(group, after))
    for at in added.tolist():
        yield follows[at]


def _weights_again(calls: Calls) -> Iterator[_Seen]:
    """Weights that are cast in each micro-batch: in a forward pass that follows a backward pass of the same update."""
    weights = _weight_casts(calls, {"fp32"})
    ranges, view = calls.view.trace.ranges, calls.view
    nodes = np.unique(calls.node[calls.node >= 0])
    updates = calls.named(lambda n: n.startswith("Optimizer.step#"))
    if not len(weights) or not len(nodes) or not (updates.any() or view.steps.count):
        return
    time = ranges.start_ns[calls.casts.row[weights]].astype(np.int64)
    process = np.array([t.process for t in view.trace.threads], np.int64)[
        ranges.thread[calls.casts.row[weights]]
    ]
    step = view.steps.at(process, time) if view.steps.count else np.zeros(len(time), np.int64)
    update = np.searchsorted(np.sort(ranges.start_ns[updates]), time)
    batch = np.searchsorted(np.sort(ranges.start_ns[nodes]), time)
    first: dict[tuple[int, int], int] = {}
    known: dict[tuple[int, int], set[object]] = {}
    for at, *key, number in zip(
        weights.tolist(), step.tolist(), update.tolist(), batch.tolist(), strict=True
    ):
        where = (key[0], key[1])
        row, shape = int(calls.casts.row[at]), calls.casts.shape[at]
        if number == first.setdefault(where, number):
            known.setdefault(where, set()).add(shape)
        elif shape in known[where]:
            yield _Seen(int(calls.casts.wrapper[at]), "weights-cast-again", (row,))


def _weight_casts(calls: Calls, sources: Set[str]) -> Column:
    """Casts to 16 bits of what a product of the forward pass takes besides its first input, in order of time."""
    casts = calls.casts
    down = np.isin(casts.target.astype(str), _NARROW) & np.isin(casts.source.astype(str), sorted(sources))
    found = []
    for at in np.flatnonzero(down & (casts.wrapper >= 0)).tolist():
        wrapper = int(casts.wrapper[at])
        is_weight = any(t.shape == casts.shape[at] for t in calls.operands(wrapper)[1:])
        if is_weight and _name(calls, wrapper) in LOWER and calls.node[wrapper] < 0:
            found.append(at)
    rows = np.array(found, np.int64)
    return (
        rows[np.argsort(calls.view.trace.ranges.start_ns[casts.row[rows]], kind="stable")] if found else rows
    )
