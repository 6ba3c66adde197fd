"""The precision map: which arithmetic ran in each phase, on which unit, and which types operators took."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.hardware import VECTOR
from profkit.model import OperationKind
from profkit.model.kernel_class import Family, KernelClass
from profkit.model.report_precision import OperatorTypes, PrecisionRow, Tf32Row, Tf32Work
from profkit.model.rows import replace
from profkit.model.summing import Summed
from profkit.roofline.input_types import takes_fp32
from profkit.roofline.operator_shapes import floating_input_type, tensor_types
from profkit.timeline.grouping import group_rows, sums
from profkit.timeline.view import TraceView

__all__ = [
    "OPERATOR_TYPES",
    "TF32",
    "WindowKernels",
    "busiest_types",
    "operator_types",
    "precision_rows",
    "precision_together",
    "tf32_rows",
]

Column = NDArray[np.int64]

OPERATOR_TYPES: Final = Summed[OperatorTypes](
    ("name", "takes", "computes", "gives", "tensor_core", "matrix"), ("ns", "count")
)
TF32: Final = Summed[Tf32Row](("work", "switch"), ("tf32_ns", "fp32_ns"))
_MOST_ROWS: Final = 500
_FIRST_TF32: Final = (8, 0)
"""The compute capability from which on GPUs have TF32: Ampere (CUDA C++ Programming Guide, compute capabilities)."""
_WITH_TF32: Final = (Family.GEMM, Family.CONVOLUTION)
_NEW_SWITCHES: Final = (2, 9)


@dataclass(frozen=True, eq=False)
class WindowKernels:
    """The kernels of a trace's window, by column."""

    row: Column
    """In `Trace.operations`."""
    duration_ns: Column
    dtype: NDArray[Any]
    """Index into ``OperationWork.dtypes``, or -1."""
    tensor_core: NDArray[np.int8]
    """1, 0, or -1 for unknown."""
    matrix: NDArray[np.bool_]
    operator: Column
    """The string id of the innermost operator's name in ``source``, or -1."""
    types: Column
    """The string id of that operator's types in ``source``, or -1."""
    source: Sequence[str]
    """The texts of the recording that has the operators: the trace itself, or a profiler trace of the same step."""

    @classmethod
    def of(cls, view: TraceView) -> WindowKernels:
        """Those of a trace."""
        operations = view.trace.operations
        row = np.flatnonzero((operations.kind == OperationKind.KERNEL) & view.counted)
        names, code = np.unique(operations.name[row], return_inverse=True)
        known = [view.work.class_of_name[name] for name in names.tolist()]
        tensor_core = np.array([-1 if k.tensor_core is None else k.tensor_core for k in known], np.int8)
        source = view if view.operator_trace is None else view.operator_trace
        launched = row if view.operator_trace is None else view.match[row]
        operator = np.where(launched >= 0, source.launches.operator[launched], -1)
        ranges = source.trace.ranges

        def of_operator(column: NDArray[Any]) -> Column:
            return np.where(operator >= 0, column[operator] if len(column) else -1, -1).astype(np.int64)

        return cls(
            row=row,
            duration_ns=(operations.end_ns - operations.start_ns)[row].astype(np.int64),
            dtype=view.work.dtype[row],
            tensor_core=tensor_core[code] if len(row) else np.empty(0, np.int8),
            matrix=np.array([k.is_product for k in known] or [False], bool)[code],
            operator=of_operator(ranges.name),
            types=of_operator(ranges.dtypes),
            source=source.trace.strings,
        )


def precision_rows(view: TraceView) -> list[PrecisionRow]:
    """Time, work and launches of the window's kernels by phase, type, unit, and products or not."""
    kernels = WindowKernels.of(view)
    if not len(kernels.row):
        return []
    path = view.phases.path_of(view.phases.of_operation[kernels.row])
    group, example = group_rows(path, kernels.dtype, kernels.tensor_core, kernels.matrix)
    flop = view.work.flop[kernels.row]
    known, count = ~np.isnan(flop), len(example)
    columns = {
        "ns": sums(group, kernels.duration_ns, count),
        "flop_ns": sums(group, np.where(known, kernels.duration_ns, 0), count),
        "count": np.bincount(group, minlength=count),
    }
    work, has_work = sums(group, np.where(known, flop, 0.0), count), np.bincount(group, known, count) > 0
    return [
        PrecisionRow(
            phase=view.phases.paths[path[at]] if path[at] >= 0 else None,
            dtype=_type(view, kernels.dtype[at]),
            tensor_core=_unit(kernels.tensor_core[at]),
            matrix=bool(kernels.matrix[at]),
            flop=round(work[number]) if has_work[number] else None,
            **{name: int(column[number]) for name, column in columns.items()},
        )
        for number, at in enumerate(example.tolist())
    ]


def precision_together(rows: Iterable[PrecisionRow]) -> list[PrecisionRow]:
    """The map of several traces, most time first: what is known of the work adds up."""
    found: dict[tuple[Any, ...], PrecisionRow] = {}
    for row in rows:
        key = (row.phase, row.dtype, row.tensor_core, row.matrix)
        had = found.get(key)
        found[key] = row if had is None else _sum(had, row)
    return sorted(found.values(), key=lambda r: (-r.ns, str(r.phase), str(r.dtype), str(r.tensor_core)))


def _sum(one: PrecisionRow, other: PrecisionRow) -> PrecisionRow:
    known = [row.flop for row in (one, other) if row.flop is not None]
    added = {name: getattr(one, name) + getattr(other, name) for name in ("ns", "flop_ns", "count")}
    return replace(one, flop=sum(known) if known else None, **added)


def operator_types(view: TraceView) -> list[OperatorTypes]:
    """Which types the operators of the window's kernels took, and what the kernels computed in and wrote."""
    kernels = WindowKernels.of(view)
    launched = np.flatnonzero(kernels.operator >= 0)
    if not len(launched):
        return []
    names = view.trace.operations.name[kernels.row].astype(np.int64)
    keys = (kernels.operator, kernels.types, kernels.dtype, kernels.tensor_core, kernels.matrix, names)
    group, example = group_rows(*(column[launched] for column in keys))
    time = sums(group, kernels.duration_ns[launched], len(example))
    rows = [
        OperatorTypes(
            name=kernels.source[kernels.operator[at]],
            takes=tensor_types(kernels.source[kernels.types[at]]) if kernels.types[at] >= 0 else (),
            computes=_type(view, kernels.dtype[at]),
            gives=_written(view.work.class_of_name[int(names[at])]),
            tensor_core=_unit(kernels.tensor_core[at]),
            matrix=bool(kernels.matrix[at]),
            ns=int(ns),
            count=int(count),
        )
        for at, ns, count in zip(launched[example].tolist(), time, np.bincount(group), strict=True)
    ]
    return OPERATOR_TYPES.rows(rows)


def busiest_types(rows: Sequence[OperatorTypes]) -> list[OperatorTypes]:
    """The table of operators' types: most time first."""
    return sorted(rows, key=lambda r: (-r.ns, r.name, r.takes, str(r.computes), str(r.gives)))[:_MOST_ROWS]


def _type(view: TraceView, code: int) -> str | None:
    return view.work.dtypes[code] if code >= 0 else None


def _unit(code: int) -> bool | None:
    return None if code < 0 else bool(code)


def _written(kernel: KernelClass) -> str | None:
    """Names of pointwise kernels begin with the type that they write; those of products may show it."""
    return kernel.operands[0] if kernel.operands else kernel.out_dtype if kernel.is_product else None


def tf32_rows(view: TraceView) -> list[Tf32Row]:
    """How much time products and convolutions of fp32 took in TF32 and in fp32, on GPUs that have TF32."""
    kernels, trace = WindowKernels.of(view), view.trace
    names = trace.operations.name[kernels.row].astype(np.int64)
    group, example = group_rows(names, kernels.operator, kernels.types, trace.operations.device[kernels.row])
    time = sums(group, kernels.duration_ns, len(example))
    release = _release(trace.source.tool_version)
    found = []
    for at, ns in zip(example.tolist(), time.tolist(), strict=True):
        kernel, device = view.work.class_of_name[int(names[at])], trace.operations.device[kernels.row[at]]
        if (trace.devices[device].compute_capability or (0, 0)) < _FIRST_TF32:
            continue
        operator = kernels.source[kernels.operator[at]] if kernels.operator[at] >= 0 else ""
        types = kernels.source[kernels.types[at]] if kernels.types[at] >= 0 else ""
        fast = kernel.dtype == "tf32"
        slow = kernel.dtype == "fp32" and kernel.unit == VECTOR and not kernel.is_of_vectors
        if kernel.family not in _WITH_TF32 or not kernel.is_product or not (fast or slow):
            continue
        if slow and not takes_fp32(trace.strings[names[at]], floating_input_type(types)):
            continue
        convolves = kernel.family is Family.CONVOLUTION or "conv" in operator
        work: Tf32Work = "convolutions" if convolves else "products"
        found.append(Tf32Row(work=work, tf32_ns=ns * fast, fp32_ns=ns * slow, switch=_switch(work, release)))
    return TF32.rows(found)


def _switch(work: Tf32Work, release: tuple[int, int] | None) -> str:
    """What turns TF32 on: torch 2.9 brought one switch for each backend and operator, and keeps the old ones."""
    since = release or (0, 0)
    if work == "convolutions":
        new, old = (
            'torch.backends.cudnn.conv.fp32_precision = "tf32"',
            "torch.backends.cudnn.allow_tf32 = True",
        )
        return new if since >= _NEW_SWITCHES else old
    if since >= _NEW_SWITCHES:
        return 'torch.backends.cuda.matmul.fp32_precision = "tf32"'
    # Before 1.12 it was on, and set_float32_matmul_precision did not exist.
    if release and release < (1, 12):
        return "torch.backends.cuda.matmul.allow_tf32 = True"
    return 'torch.set_float32_matmul_precision("high")'


def _release(version: str | None) -> tuple[int, int] | None:
    found = re.match(r"(\d{1,3})\.(\d{1,3})", version or "")
    return (int(found[1]), int(found[2])) if found else None
