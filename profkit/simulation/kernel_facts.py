"""What is known of each operation of a step: its kernel, its operator, its place in training, its sizes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from profkit.hardware import Gpu
from profkit.model import OperationKind, RangeKind
from profkit.model.kernel_class import Family, KernelClass
from profkit.roofline.operator_shapes import floating_input_type
from profkit.simulation.exchanged import Exchanged
from profkit.simulation.step_program import Program
from profkit.timeline.view import TraceView

__all__ = ["StepFacts", "find_facts"]

Found = TypeVar("Found")
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

_OPTIMIZER_WORDS: Final = frozenset({"optimizer", "optim", "opt", "optimizer_step", "optim_step", "opt_step"})
_MOST_ELEMENTS: Final = 1e14
_GRAPH: Final = 8
"""Operations of one launch from which on it is a graph's, which does not tell what launching a kernel takes."""
_MOST_LAUNCH_NS: Final = 100_000.0
"""What it takes at most, then."""
_SIZE: Final = re.compile(r"\d")
_COMPILED: Final = re.compile(r"CompiledFunction|Torch-Compiled Region|Call CompiledFxGraph")


@dataclass(frozen=True, eq=False)
class StepFacts:
    """The operations of a program, by column; a row for each of its operations, in order."""

    view: TraceView
    device: int
    program: Program
    gpu: Gpu | None
    kernels: list[KernelClass | None]
    """The class of each kernel; None for copies, memsets and graphs."""
    family: NDArray[np.object_]
    """`Family`, or None."""
    dtype: NDArray[np.object_]
    """The type that the kernel computes in, or ""."""
    operators: list[tuple[str, ...]]
    """The operators around each launch, innermost first."""
    operator_row: NDArray[np.int64]
    """The row in `Trace.ranges` of the innermost operator that has shapes, else of the innermost, or -1."""
    outer_row: NDArray[np.int64]
    """The row in `Trace.ranges` of the outermost operator (in the backward pass: the node), or -1."""
    backward: Flags
    optimizer: Flags
    zeroing: Flags
    """Launched by ``zero_grad``."""
    flop: Floats
    bytes: Floats
    token: NDArray[np.int64]
    """The token that launched it."""
    exchanged_by_all: Exchanged | None = None
    """The collectives of all traces of the job; None where there is this one alone."""
    _once: dict[Callable[[StepFacts], Any], Any] = field(default_factory=dict, repr=False)

    def once(self, find: Callable[[StepFacts], Found]) -> Found:
        """What a function finds in these facts: looked for once, however often the step is replayed."""
        if find not in self._once:
            self._once[find] = find(self)
        found: Found = self._once[find]
        return found

    @cached_property
    def exchanged(self) -> Exchanged:
        """The collectives of all traces of the job."""
        return self.exchanged_by_all or Exchanged.of([self.view])

    @cached_property
    def host_span(self) -> tuple[int, int]:
        """When the host worked on the step: from the end of the one before to the return of its last launch."""
        launches, program = self.view.launches, self.program
        since = int(launches.time_ns[program.row].min()) - int(program.gap_ns[0])
        return since, int(launches.return_ns[program.row].max()) + 1

    @property
    def count(self) -> int:
        """How many operations there are."""
        return len(self.kernels)

    def of_family(self, *families: Family) -> Flags:
        """Which operations are kernels of these families."""
        return np.array([f in families for f in self.family], bool)

    @cached_property
    def matrix(self) -> Flags:
        """Matrix products, convolutions and attention."""
        return np.array([k is not None and k.is_matrix for k in self.kernels], bool)

    @cached_property
    def trains(self) -> bool:
        """Whether the step has a backward pass."""
        return bool(self.backward.any())

    @cached_property
    def compiled(self) -> Flags:
        """Whether each operation belongs to a compiled graph."""
        return np.array(
            [
                bool(k is not None and k.function.startswith("triton_")) or any(map(_COMPILED.match, names))
                for k, names in zip(self.kernels, self.operators, strict=True)
            ],
            bool,
        )

    @cached_property
    def inputs(self) -> list[tuple[float, ...]]:
        """Elements of each tensor (or list of tensors) that the operator of an operation takes; () is unknown."""
        shapes = self.view.trace.ranges.shapes
        known = {}
        found = []
        for row in self.operator_row.tolist():
            text = int(shapes[row]) if row >= 0 else -1
            if text not in known:
                known[text] = _sizes(self.view.trace.strings[text]) if text >= 0 else ()
            found.append(known[text])
        return found

    @cached_property
    def elements(self) -> Floats:
        """Elements of the largest input of each operation's operator; NaN is unknown."""
        return np.array([max(sizes) if sizes else math.nan for sizes in self.inputs])

    @cached_property
    def taken(self) -> list[str | None]:
        """The floating type that the operator around each launch took, where the recording has it."""
        known = np.full(self.count, -1)
        has = self.operator_row >= 0
        known[has] = self.view.trace.ranges.dtypes[self.operator_row[has]]
        types = {
            t: floating_input_type(self.view.trace.strings[t]) for t in np.unique(known).tolist() if t >= 0
        }
        return [types.get(text) for text in known.tolist()]

    @cached_property
    def in_graph(self) -> Flags:
        """Whether each operation is a node of a graph that one call launched."""
        found: Flags = np.bincount(self.token, minlength=self.program.tokens)[self.token] >= _GRAPH
        return found

    @cached_property
    def convolves(self) -> bool:
        """Whether convolutions take most of the time of matrix kernels."""
        return self.share(self.of_family(Family.CONVOLUTION)) > self.share(self.matrix) / 2

    def named(self, *parts: str) -> Flags:
        """Which operations were launched within an operator whose name has one of these parts."""
        has = {names: any(p in n for n in names for p in parts) for names in set(self.operators)}
        return np.array([has[names] for names in self.operators], bool)

    def innermost(self, *names: str) -> Flags:
        """Which operations have one of these operators as their innermost."""
        return np.array([bool(o) and o[0] in names for o in self.operators], bool)

    def usual_launch_ns(self, program: Program) -> float:
        """What the launch of a kernel takes of the host in a program of this step, with what leads to it: a median."""
        kernels = np.array([k is not None for k in self.kernels], bool)
        launching = np.unique(self.token[kernels])
        graphs = np.unique(self.token[kernels & self.in_graph])
        whole = program.gap_ns - program.kept_ns + program.own_ns
        usual = float(np.median(whole[launching])) if len(launching) else 0.0
        return min(usual, _MOST_LAUNCH_NS) if 2 * len(graphs) > len(launching) else usual

    def share(self, chosen: Flags) -> float:
        """The share of the device's time that some operations have."""
        total = float(self.program.duration_ns.sum())
        return float(self.program.duration_ns[chosen].sum()) / total if total else 0.0


def find_facts(
    view: TraceView, device: int, program: Program, exchanged: Exchanged | None = None
) -> StepFacts:
    """Collect what the changes need to know of a step."""
    trace, rows = view.trace, program.row
    operations = trace.operations
    kernels = [
        view.work.class_of_name.get(name) if kind == OperationKind.KERNEL else None
        for name, kind in zip(operations.name[rows].tolist(), operations.kind[rows].tolist(), strict=True)
    ]
    chains = [list(_chain(view, row)) for row in view.launches.operator[rows].tolist()]
    launched = np.repeat(np.arange(program.tokens), np.diff(program.first))
    names = [tuple(trace.strings[trace.ranges.name[r]] for r in chain) for chain in chains]
    threads = view.launches.thread[rows]
    autograd = view.phases.autograd_threads
    if set(np.unique(threads).tolist()) <= autograd:
        # Without phases every thread looks like the engine's: only its name tells.
        autograd = frozenset(
            t for t in autograd if any(n.startswith("pt_autograd_") for n in view.trace.threads[t].names)
        )
    backward = np.isin(threads, sorted(autograd)) | np.array(
        [any(n.startswith("autograd::engine::evaluate_function") for n in each) for each in names], bool
    )
    return StepFacts(
        view=view,
        device=device,
        program=program,
        gpu=view.gpus[device] if device < len(view.gpus) else None,
        kernels=kernels,
        family=np.array([k.family if k else None for k in kernels] or [None], object)[: len(kernels)],
        dtype=_dtypes(view, rows, kernels),
        operators=names,
        operator_row=np.array([_shaped(view, chain) for chain in chains], np.int64),
        outer_row=np.array([chain[-1] if chain else -1 for chain in chains], np.int64),
        backward=backward,
        optimizer=_within(view, rows, "Optimizer.step#", _OPTIMIZER_WORDS)
        | np.array([k is not None and k.family is Family.OPTIMIZER for k in kernels], bool),
        zeroing=_within(view, rows, "Optimizer.zero_grad#", frozenset({"zero_grad"})),
        flop=view.work.flop[rows],
        bytes=view.work.dram_bytes[rows],
        token=launched,
        exchanged_by_all=exchanged,
    )


def _dtypes(
    view: TraceView, rows: NDArray[np.int64], kernels: Sequence[KernelClass | None]
) -> NDArray[np.object_]:
    half = np.array([k is not None and k.is_half_attention for k in kernels], bool)
    known = np.array([*view.work.dtypes, ""], object)[view.work.dtype[rows]]
    dtypes: NDArray[np.object_] = np.where(half & (known == ""), "bf16", known)
    return dtypes


def _chain(view: TraceView, row: int) -> Iterator[int]:
    parent = view.launches.operators.parent
    depth = 0
    while row >= 0 and depth < 64:
        yield row
        row, depth = int(parent[row]), depth + 1


def _shaped(view: TraceView, chain: list[int]) -> int:
    shapes = view.trace.ranges.shapes
    for row in chain:
        if shapes[row] >= 0 and _SIZE.search(view.trace.strings[shapes[row]]):
            return row
    return next((row for row in chain if shapes[row] >= 0), chain[0] if chain else -1)


def _within(view: TraceView, rows: NDArray[np.int64], prefix: str, words: frozenset[str]) -> Flags:
    """Launched inside a range with this prefix on its thread, or inside a phase with one of these names."""
    trace, ranges = view.trace, view.trace.ranges
    time, thread = view.launches.time_ns[rows], view.launches.thread[rows]
    inside = np.zeros(len(rows), bool)
    named = np.array([s.startswith(prefix) for s in trace.strings] or [False])[ranges.name]
    named &= ranges.kind == RangeKind.ANNOTATION
    since, until = (int(time.min()), int(time.max())) if len(time) else (0, 0)
    for at in np.flatnonzero(named & (ranges.start_ns <= until) & (ranges.end_ns >= since)).tolist():
        here = (time >= ranges.start_ns[at]) & (time < ranges.end_ns[at]) & (thread == ranges.thread[at])
        inside |= here
    paths = view.phases.path_of(view.phases.of_operation[rows])
    wanted = np.array(
        [not words.isdisjoint(p.lower().replace(" ", "_").split("/")) for p in view.phases.paths] + [False]
    )
    found: Flags = inside | wanted[paths]
    return found


def _sizes(text: str) -> tuple[float, ...]:
    try:
        shapes = json.loads(text)
    except ValueError:
        return ()
    sizes = [_elements(shape) for shape in shapes] if isinstance(shapes, list) else []
    return tuple(s for s in sizes if s > 0)


def _elements(shape: Any) -> float:
    """Elements of a shape or a list of shapes; more than any GPU holds are not known."""
    if not isinstance(shape, list) or not shape:
        return 0.0
    if isinstance(shape[0], list):
        found = math.fsum(_elements(each) for each in shape)
    else:
        found = math.prod(_length(s) for s in shape if isinstance(s, (int, float)))
    return found if found <= _MOST_ELEMENTS else 0.0


def _length(size: float) -> float:
    return float(size) if -_MOST_ELEMENTS <= size <= _MOST_ELEMENTS else math.inf
