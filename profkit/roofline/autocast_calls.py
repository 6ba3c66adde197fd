"""What a recording shows of autocast: the operators that it wrapped, and the casts that were made.

Autocast sits before the operator: it is recorded twice, once as it was called and inside that, after the casts, as it ran.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind, RangeKind
from profkit.roofline.autocast_lists import LOWER, wrapped_by_autocast
from profkit.roofline.operator_shapes import Tensor, argument_kinds, parse_call
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView

__all__ = ["SIXTEEN_BITS", "Calls", "Casts", "bare"]

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]

SIXTEEN_BITS: Final = frozenset({"bf16", "fp16"})
_OF_TORCH: Final = frozenset({"CompiledFunctionBackward", "CheckpointFunctionBackward"})
"""Functions of torch itself; those of operators end with a digit."""


def bare(name: str) -> str:
    """``aten::mm`` as ``mm``."""
    return name.removeprefix("aten::")


@dataclass(frozen=True, eq=False)
class Casts:
    """Changes of a tensor's floating type, one a row."""

    row: Column
    """Of the outermost ``aten::to`` in `Trace.ranges`."""
    source: NDArray[np.object_]
    target: NDArray[np.object_]
    """Types."""
    shape: NDArray[np.object_]
    wrapper: Column
    """The wrapped operator that autocast made it for, or -1."""


@dataclass(frozen=True, eq=False)
class Calls:
    """The operators of a trace with what autocast made of them."""

    view: TraceView

    @cached_property
    def parent(self) -> Column:
        """Of each range: the operator around it, or -1."""
        return self.view.launches.operators.parent

    @cached_property
    def operator(self) -> Flags:
        """Operators of the window."""
        ranges = self.view.trace.ranges
        begun: Flags = self.view.begun_in_window(ranges.thread, ranges.start_ns)
        chosen: Flags = begun & (ranges.kind == RangeKind.OPERATOR)
        return chosen

    @cached_property
    def on_gpu(self) -> bool:
        """Whether anything ran on a GPU, whose lists differ from a CPU's."""
        return bool((self.view.trace.operations.kind == OperationKind.KERNEL).any())

    @cached_property
    def inner(self) -> Column:
        """Operators as they ran inside autocast: with the arguments of the one around them.

        Without autocast, some call another form of themselves: ``sum(x)`` is ``sum(x, dims, keepdim)``.
        """
        name, parent = self.view.trace.ranges.name, self.parent
        names = wrapped_by_autocast(gpu=self.on_gpu)
        listed = np.flatnonzero(self.operator & self.named(lambda n: bare(n) in names))
        around = parent[listed]
        rows = listed[(around >= 0) & (name[np.maximum(around, 0)] == name[listed])]
        alike = [self._arguments(row) == self._arguments(int(parent[row])) for row in rows.tolist()]
        found: Column = rows[np.array(alike, bool)]
        return found

    @cached_property
    def wrapper(self) -> Flags:
        """Operators as they were called: those around `inner`."""
        found = np.zeros(len(self.parent), bool)
        found[self.parent[self.inner]] = True
        return found

    @cached_property
    def node(self) -> Column:
        """Of each range: the node of the backward pass around it, or -1."""
        nodes = self.operator & self.named(lambda n: n.startswith("autograd::engine::evaluate_function"))
        return self.nearest(np.arange(len(self.parent)), nodes)

    @cached_property
    def own_function(self) -> Flags:
        """Nodes that are the backward pass of a ``torch.autograd.Function`` of the program's own."""
        name, strings = self.view.trace.ranges.name, self.view.trace.strings
        nodes = np.unique(name[self.node[self.node >= 0]]).tolist()
        functions = {each: strings[each].rpartition(" ")[2] for each in nodes}
        # Before torch 1.10 the nodes of operators had no digit at their end.
        numbered = any(function[-1:].isdigit() for function in functions.values())
        own = [each for each, f in functions.items() if f.endswith("Backward") and f not in _OF_TORCH]
        found: Flags = np.isin(name, own if numbered else [])
        return found

    @cached_property
    def in_optimizer(self) -> Flags:
        """Operators that run while an optimizer steps on their thread."""
        ranges = self.view.trace.ranges
        marks = np.flatnonzero(self.named(lambda n: n.startswith("Optimizer.step#")))
        inside = np.zeros(len(ranges), bool)
        for mark in marks.tolist():
            same = ranges.thread == ranges.thread[mark]
            inside |= (
                same & (ranges.start_ns >= ranges.start_ns[mark]) & (ranges.start_ns < ranges.end_ns[mark])
            )
        return inside

    @cached_property
    def casts(self) -> Casts:
        """All changes of floating type."""
        rows, source, target, shape = [], [], [], []
        copies = np.flatnonzero(self.operator & self.named(lambda n: n == "aten::copy_"))
        text, name = self.view.trace.strings, self.view.trace.ranges.name
        for row in copies.tolist():
            copying = int(self.parent[row])
            tensors = self.inputs(row)
            if copying < 0 or len(tensors) < 2 or text[name[copying]] != "aten::_to_copy":
                continue
            to, of = tensors[0].dtype, tensors[1].dtype
            if to != of and all(t is not None and t[:2] in ("fp", "bf") for t in (to, of)):
                over = int(self.parent[copying])
                rows.append(over if over >= 0 and text[name[over]] == "aten::to" else copying)
                source.append(of)
                target.append(to)
                shape.append(tensors[1].shape)
        made = np.array(
            [
                -1 if above < 0 or not self.wrapper[above] else above
                for above in map(int, self.parent[np.array(rows, np.int64)])
            ]
        )
        return Casts(
            np.array(rows, np.int64),
            _objects(source),
            _objects(target),
            _objects(shape),
            made.astype(np.int64),
        )

    @cached_property
    def region_types(self) -> list[str]:
        """The types of 16 bits of the regions of autocast; empty where there is none."""
        added = self.casts.target[self.casts.wrapper >= 0].tolist()
        # A model whose weights have 16 bits by themselves needs no casts: its products still run inside themselves.
        name, strings = self.view.trace.ranges.name, self.view.trace.strings
        inner = [row for row in self.inner.tolist() if bare(strings[name[row]]) in LOWER]
        return sorted({*added, *(t for row in inner for t in self.types(row) if t)} & SIXTEEN_BITS)

    def named(self, test: Callable[[str], bool]) -> Flags:
        """Ranges whose name passes a test."""
        return matching(self.view.trace.strings, self.view.trace.ranges.name, test)

    def nearest(self, rows: Column, wanted: Flags) -> Column:
        """Of each row: itself or the innermost operator around it that is wanted, or -1."""
        found = np.full(len(rows), -1, np.int64)
        at, row = np.arange(len(rows)), rows.astype(np.int64)
        while len(at):
            at, row = at[row >= 0], row[row >= 0]
            hit = wanted[row]
            found[at[hit]] = row[hit]
            at, row = at[~hit], self.parent[row[~hit]]
        return found

    def outermost(self, rows: Column) -> list[int]:
        """Those of some operators that are within no other of them; one whose types are unknown holds none."""
        typed = np.zeros(len(self.parent), bool)
        typed[[row for row in rows.tolist() if self.inputs(row)]] = True
        inside = self.nearest(self.parent[rows] if len(rows) else rows, typed)
        found: list[int] = rows[inside < 0].tolist()
        return found

    def inputs(self, row: int) -> list[Tensor]:
        """The tensors with a floating type and at least one dimension that an operator took."""
        return [t for t in self.operands(row) if t.dtype]

    def operands(self, row: int) -> list[Tensor]:
        """The same, and those in lists, of which no type is recorded."""
        ranges = self.view.trace.ranges
        key = (int(ranges.shapes[row]), int(ranges.dtypes[row]))
        if key not in self._parsed:
            shapes, dtypes = (self.view.trace.strings[i] if i >= 0 else "" for i in key)
            tensors = parse_call("", shapes, dtypes, "", "").tensors()
            self._parsed[key] = [t for t in tensors if t.dtype is None or t.dtype[:2] in ("fp", "bf")]
        return self._parsed[key]

    def _arguments(self, row: int) -> tuple[bool, ...]:
        text = int(self.view.trace.ranges.dtypes[row])
        if text not in self._kinds:
            self._kinds[text] = argument_kinds(self.view.trace.strings[text]) if text >= 0 else ()
        return self._kinds[text]

    @cached_property
    def _kinds(self) -> dict[int, tuple[bool, ...]]:
        return {}

    @cached_property
    def _parsed(self) -> dict[tuple[int, int], list[Tensor]]:
        return {}

    def types(self, row: int) -> set[str | None]:
        """The floating types that an operator took."""
        return {tensor.dtype for tensor in self.inputs(row)}


def _objects(values: list[Any]) -> NDArray[np.object_]:
    made = np.empty(len(values), object)
    made[:] = values
    return made
