"""Which operator made each block: the allocations of a trace found again in a memory history."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import IntColumn, RangeKind, Trace
from profkit.model.memory_history import Action
from profkit.simulation.memory_program import MemoryProgram
from profkit.timeline.nesting import Nesting

__all__ = ["BlockOperators", "Call", "block_operators"]

_ALLOCATING: Final = frozenset(
    {"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::resize_", "aten::new_empty", "aten::zeros",
     "aten::zeros_like", "aten::new_zeros", "aten::zero_", "aten::new_empty_strided", "aten::ones_like"}
)  # fmt: skip
"""Operators that others call for their results: what called them is what made the block."""
_NODE: Final = "autograd::engine::evaluate_function: "
_NO_FLOATS: Final = frozenset(
    {"long int", "int", "short int", "short", "signed char", "unsigned char", "bool", "long", "char"}
)
"""How Kineto writes the types of tensors of whole numbers and of truth values (c10::typeMetaToScalarType's C++ names)."""
_LEAST_AGREEMENT: Final = 0.95
"""Of the addresses of the trace's allocations, to be taken for those of the history."""
_FARTHEST: Final = 64
"""How many allocations the clocks of the two may be apart."""


@dataclass(frozen=True)
class Call:
    """An operator's call."""

    name: str
    sizes: tuple[int, ...]
    """Elements of each tensor that it takes; 0 for what is none."""
    shapes: tuple[tuple[int, ...], ...]
    backward: bool
    sequence: int
    """Autograd's number; a backward call has that of the forward call. -1 is unknown."""
    first: int
    """The state of the history in which it begins."""
    last: int
    floats: tuple[bool, ...] = ()
    """Whether each of the tensors holds floats; empty where no types were recorded."""
    spans: tuple[int, ...] = ()
    """Elements from the first to the last of each: more than its size for a part of a larger tensor; empty is unknown."""

    def float_inputs(self) -> Iterator[tuple[int, int]]:
        """Size and span of each tensor of floats."""
        for place, size in enumerate(self.sizes):
            if size and (not self.floats or self.floats[place]):
                yield size, self.spans[place] if self.spans else size


@dataclass(frozen=True, eq=False)
class BlockOperators:
    """The operators of one step, which blocks each made, and where the same blocks are in other steps."""

    calls: Sequence[Call]
    """In order of their beginning."""
    rows: IntColumn
    """Rows of the program that the step allocates, in order."""
    call: IntColumn
    """For each of them the index of the call that made it, -1 is unknown."""
    repeats: Sequence[IntColumn]
    """The rows of each step that allocates at the same places in the code in the same order, this one included."""
    passing: IntColumn
    """The rows that begin and end within a step unlike this one: what made them is not known."""

    def spread(self, values: NDArray[np.float64], count: int, fill: float) -> NDArray[np.float64]:
        """Values of the step's rows, given to the rows of all steps like it."""
        found = np.full(count, fill)
        for rows in self.repeats:
            found[rows] = values
        return found


def block_operators(program: MemoryProgram, trace: Trace) -> BlockOperators | None:
    """The operators of a step that trace and history share; None where they are not of the same execution."""
    memory = trace.memory.take((trace.memory.device >= 0) & (trace.memory.bytes > 0))
    if not len(memory) or trace.unix_epoch_ns is None or not len(trace.ranges):
        return None
    memory = memory.take(np.argsort(memory.time_ns, kind="stable"))
    events = program.replayed.events
    made = np.flatnonzero(events.action == Action.ALLOC)
    first = _first_shared(
        events.address[made], events.time_ns[made], memory.address, memory.time_ns + trace.unix_epoch_ns
    )
    if first is None:
        return None
    shared = made[first : first + len(memory)]
    memory = memory.take(np.arange(len(memory)) < len(shared))
    # The clocks of the two differ by microseconds: an allocation's state is known from its event.
    steps = [s for s in program.stretches.steps or program.stretches.optimizer if s.last > s.first]
    of_state = np.full(program.end, -1, np.int64)
    rows = np.flatnonzero(program.allocated > 0)
    of_state[program.allocated[rows]] = rows
    sequences = [_rows_between(of_state, each.first + 1, each.last + 1) for each in steps]
    whole = [
        i
        for i, each in enumerate(steps)
        if each.first >= shared[0] and each.last <= shared[-1] + _slack(each.last)
    ]
    if not whole:
        return None
    chosen = whole[0]
    mine = sequences[chosen]
    alike = [_alike(program, mine, each) for each in sequences]
    repeats = [each for each, same in zip(sequences, alike, strict=True) if same]
    others = [
        rows[program.freed[rows] <= step.last]
        for rows, step, same in zip(sequences, steps, alike, strict=True)
        if not same
    ]
    calls, call_of = _calls(trace, memory.time_ns, memory.thread, shared + 1)
    by_state = dict(zip((shared + 1).tolist(), call_of.tolist(), strict=True))
    call = np.array([by_state.get(int(state), -1) for state in program.allocated[mine]], np.int64)
    return BlockOperators(calls, mine, call, repeats, np.concatenate([np.zeros(0, np.int64), *others]))


def _alike(program: MemoryProgram, one: IntColumn, other: IntColumn) -> bool:
    """Whether two steps allocate in the same way; sizes may differ where the code is the same, such as those of random masks."""
    return len(one) == len(other) and any(
        bool((column[one] == column[other]).all()) for column in (program.requested, program.stack)
    )


def _slack(last: int) -> int:
    return 64 + last // 100


def _rows_between(of_state: IntColumn, first: int, last: int) -> IntColumn:
    rows = of_state[first:last]
    return rows[rows >= 0]


def _first_shared(
    addresses: IntColumn, times: IntColumn, traced: IntColumn, traced_times: IntColumn
) -> int | None:
    """Where in the history the allocations of the trace begin: near their time, at the same addresses."""
    near = int(np.searchsorted(times, traced_times[0]))
    best, found = 0.0, None
    for first in range(max(near - _FARTHEST, 0), min(near + _FARTHEST, len(addresses))):
        count = min(len(traced), len(addresses) - first)
        agreement = float((addresses[first : first + count] == traced[:count]).mean()) if count else 0.0
        if agreement > best:
            best, found = agreement, first
    return found if best >= _LEAST_AGREEMENT else None


def _calls(
    trace: Trace, times: IntColumn, threads: IntColumn, states: IntColumn
) -> tuple[list[Call], NDArray[np.int64]]:
    """All operator calls around the allocations, in order, and for each allocation the call that made it."""
    ranges = trace.ranges
    names = trace.names(ranges.name)
    nesting = Nesting.shallow(ranges, ranges.kind == RangeKind.OPERATOR)
    parent = nesting.parent
    made_by = np.array(nesting.innermost(threads, times), np.int64)
    wrapped = np.isin(names, sorted(_ALLOCATING))
    while (inside := (made_by >= 0) & wrapped[made_by]).any():
        made_by[inside] = parent[made_by[inside]]
    operators = np.flatnonzero(ranges.kind == RangeKind.OPERATOR)
    within = operators[(ranges.end_ns[operators] >= times[0]) & (ranges.start_ns[operators] <= times[-1])]
    within = within[np.argsort(ranges.start_ns[within], kind="stable")]
    place = np.full(len(ranges) + 1, -1, np.int64)
    place[within] = np.arange(len(within))
    nodes = _nodes(names, parent, within)
    inputs = {key: _inputs(trace, *key) for key in set(_input_texts(trace, within))}
    first = states[np.minimum(np.searchsorted(times, ranges.start_ns[within], "left"), len(states) - 1)]
    last = states[np.maximum(np.searchsorted(times, ranges.end_ns[within], "right") - 1, 0)]
    calls = []
    texts = _input_texts(trace, within)
    for row, text, begins, ends in zip(within.tolist(), texts, first.tolist(), last.tolist(), strict=True):
        node, (shapes, floats, spans) = nodes.get(row, -1), inputs[text]
        sizes = tuple(math.prod(shape) if shape else 0 for shape in shapes)
        sequence = int(ranges.sequence[node if node >= 0 else row])
        calls.append(Call(names[row], sizes, shapes, node >= 0, sequence, begins, ends, floats, spans))
    return calls, place[made_by]


def _input_texts(trace: Trace, rows: IntColumn) -> list[tuple[int, int, int]]:
    ranges = trace.ranges
    columns = (ranges.shapes[rows], ranges.dtypes[rows], ranges.strides[rows])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _inputs(
    trace: Trace, shapes_text: int, types_text: int, strides_text: int
) -> tuple[tuple[tuple[int, ...], ...], tuple[bool, ...], tuple[int, ...]]:
    """Shapes of an operator's inputs, which of them are floats, and their spans; the last two may be unknown."""
    shapes, types, strides = (_read(trace, text) for text in (shapes_text, types_text, strides_text))
    typed, strided = len(types) == len(shapes), len(strides) == len(shapes)
    listed = [_is_list(each) for each in shapes]
    alone = not any(shape and not is_list for shape, is_list in zip(shapes, listed, strict=True))
    dims: list[tuple[int, ...]] = []
    floats: list[bool] = []
    spans: list[int] = []
    for place, shape in enumerate(shapes):
        members, told = _members(shape), _members(strides[place] if strided else [])
        strided &= len(told) == len(members)
        for number, member in enumerate(members):
            dims.append(_sizes(member))
            floats.append(alone if listed[place] else typed and str(types[place]) not in _NO_FLOATS)
            stride = _sizes(told[number]) if strided else ()
            strided &= len(stride) == len(dims[-1])
            spans.append(_span(dims[-1], stride) if strided else 0)
    return tuple(dims), tuple(floats) if typed else (), tuple(spans) if strided else ()


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    if not shape or not math.prod(shape):
        return 0
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))


def _nodes(names: NDArray[np.object_], parent: IntColumn, rows: IntColumn) -> dict[int, int]:
    """For each operator within autograd's engine the row of its node."""
    found: dict[int, int] = {}
    for row in rows.tolist():
        above = int(parent[row])
        if names[row].startswith(_NODE):
            found[row] = row
        elif above in found:
            found[row] = found[above]
    return found


def _read(trace: Trace, text: int) -> list[object]:
    try:
        told = json.loads(trace.strings[text]) if text >= 0 else None
    except ValueError:
        return []
    return told if isinstance(told, list) else []


def _is_list(shape: object) -> bool:
    """Whether an input is a list of tensors. Beside a tensor it holds indices, else what is joined, such as by ``cat``."""
    return isinstance(shape, list) and any(isinstance(each, list) for each in shape)


def _members(told: object) -> list[object]:
    return told if isinstance(told, list) and _is_list(told) else [told]


def _sizes(told: object) -> tuple[int, ...]:
    """The sizes of one tensor's dimensions, or their strides; empty for what is none."""
    if isinstance(told, list) and all(isinstance(n, int) and n >= 0 for n in told):
        return tuple(told)
    return ()
