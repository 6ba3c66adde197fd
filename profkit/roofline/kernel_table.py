"""The kernel breakdown: one row a kernel, launch shape and operator's input shapes, most expensive first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil, fsum, isfinite, prod
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from profkit.model import LAUNCH_SHAPE, OperationKind
from profkit.model.names import Basis as BasisName
from profkit.model.names import KernelBound
from profkit.model.report_kernels import Dim3, KernelRow, PhaseTime
from profkit.model.summing import added
from profkit.model.work import Basis, OperationBound
from profkit.roofline.kernel_origins import Origins, add_call_sites
from profkit.roofline.launch_shape import Launch, Residency
from profkit.roofline.operator_shapes import tensor_shapes
from profkit.roofline.thresholds import MOST_EFFICIENT
from profkit.timeline.grouping import group_rows, sums, weights_by_pair
from profkit.timeline.view import TraceView

__all__ = [
    "KernelKey",
    "KernelSums",
    "group_kernels",
    "input_shapes",
    "kernel_rows",
    "kernel_sums",
    "kernels_together",
]

Column = NDArray[np.int64]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]
V = TypeVar("V")
Votes: TypeAlias = Mapping[V, int]
"""How much time says that it is one value or another."""

_FLOATS: Final = ("flop", "dram_bytes", "compute_ns", "memory_ns")


class KernelKey(NamedTuple):
    """What a row of the kernel table is about: persistent kernels have one grid for every size of their inputs."""

    name: str
    grid: Dim3 | None
    block: Dim3 | None
    shapes: Shapes | None
    """The shapes of the operator's inputs, where they are known."""


def group_kernels(view: TraceView) -> tuple[Column, Column, list[KernelKey]]:
    """The kernels of a trace's window, by row of the kernel table.

    Returns:
        Their rows in `Trace.operations`, the group of each, and the key of each group; a key may occur twice.
    """
    operations = view.trace.operations
    rows = np.flatnonzero((operations.kind == OperationKind.KERNEL) & view.counted)
    numbers, shapes = input_shapes(view, rows)
    group, example = group_rows(
        operations.name[rows], numbers, *(getattr(operations, c)[rows] for c in LAUNCH_SHAPE)
    )
    keys = []
    for at in example.tolist():
        row = rows[at]
        sides = tuple(int(getattr(operations, c)[row]) for c in LAUNCH_SHAPE)
        name = view.trace.strings[operations.name[row]]
        keys.append(KernelKey(name, _known_sides(sides[:3]), _known_sides(sides[3:]), shapes[numbers[at]]))
    return rows, group, keys


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelSums:
    """The launches of one row of the kernel table, of one trace or several: all of it adds up.

    What a float adds up to depends on the order, so the sums of the traces stay apart until the row is made.
    """

    key: KernelKey
    short_name: str
    family: str
    tensor_core: bool | None
    residency: Residency
    """That of its first launch."""
    tile: tuple[int, ...]
    """The part of a product that a block computes at one time, as its name has it; empty where it has none."""
    duration: tuple[Column, ...]
    """In ns, of each launch: a median needs them all."""
    bound: Votes[OperationBound]
    basis: Votes[Basis]
    dtype: Votes[str | None]
    mnk: Votes[Dim3 | None]
    flop: tuple[float, ...]
    dram_bytes: tuple[float, ...]
    compute_ns: tuple[float, ...]
    memory_ns: tuple[float, ...]
    judged_ns: int
    """Time of launches that may be unsaturated."""
    unsaturated_ns: int
    """Time of those that are."""
    phases: Mapping[str, PhaseTime]
    operators: Mapping[str, int]
    steps: Mapping[str, int]
    devices: Mapping[int, int]
    modules: Mapping[str, int]
    source_lines: Mapping[str, int]

    def numbered(self, first: int) -> KernelSums:
        """The same, with devices numbered on from a first one."""
        return replace(self, devices={first + device: ns for device, ns in self.devices.items()})


_IDENTITY: Final = frozenset({"key", "short_name", "family", "tensor_core", "residency", "tile"})
_ADDS: Final = [f.name for f in fields(KernelSums) if f.name not in _IDENTITY]


def kernels_together(parts: Iterable[KernelSums]) -> list[KernelSums]:
    """Those of several traces: one for each row of the table."""
    found: dict[KernelKey, list[KernelSums]] = {}
    for part in parts:
        found.setdefault(part.key, []).append(part)
    return [_together(same) if len(same) > 1 else same[0] for same in found.values()]


def _together(same: Sequence[KernelSums]) -> KernelSums:
    return replace(same[0], **{n: added(*(getattr(each, n) for each in same)) for n in _ADDS})


def kernel_rows(kernels: Sequence[KernelSums], busy_ns: int) -> list[KernelRow]:
    """The kernel table, most time first.

    Args:
        kernels: One for each row.
        busy_ns: The busy time of the window, over the devices: shares are of this.
    """
    rows = [_row(kernel, busy_ns) for kernel in kernels]
    return sorted(rows, key=lambda r: (-r.total_ns, r.name, *map(_as_text, (r.grid, r.block, r.shapes))))


def _as_text(sides: Sequence[Any] | None) -> str:
    return str(sides and [list(side) if isinstance(side, Sequence) else side for side in sides])


def _row(kernel: KernelSums, busy_ns: int) -> KernelRow:
    duration = np.sort(np.concatenate(kernel.duration))
    count, total = len(duration), int(duration.sum())
    bound, mnk = _heaviest(kernel.bound), _heaviest(kernel.mnk)
    flop, dram = fsum(kernel.flop), fsum(kernel.dram_bytes)
    terms = {OperationBound.COMPUTE: kernel.compute_ns, OperationBound.MEMORY: kernel.memory_ns}
    return KernelRow(
        **kernel.key._asdict(),
        **kernel.residency._replace(waves=_waves(kernel, mnk))._asdict(),
        short_name=kernel.short_name,
        family=kernel.family,
        dtype=_heaviest(kernel.dtype),
        tensor_core=kernel.tensor_core,
        mnk=mnk,
        count=count,
        total_ns=total,
        mean_ns=round(total / count),
        median_ns=int(duration[(count - 1) // 2] + duration[count // 2]) // 2,
        min_ns=int(duration[0]),
        max_ns=int(duration[-1]),
        # Never over 1, though launches may run at once.
        share=min(1.0, total / busy_ns) if busy_ns else 0.0,
        bound=_BOUND_NAMES[bound],
        basis=_BASIS_NAMES[_heaviest(kernel.basis)],
        efficiency=_efficiency(fsum(terms[bound]), total) if bound in terms else None,
        unsaturated=kernel.unsaturated_ns * 2 > kernel.judged_ns if kernel.judged_ns else None,
        flop=_known(flop),
        dram_bytes=_known(dram),
        tflops=_rate(flop, total, 1e3),
        gbs=_rate(dram, total, 1.0),
        phases=kernel.phases,
        operators=kernel.operators,
        steps=kernel.steps,
        devices={str(device): ns for device, ns in kernel.devices.items()},
        modules=kernel.modules,
        source_lines=kernel.source_lines,
    )


def _waves(kernel: KernelSums, mnk: Dim3 | None) -> float | None:
    """How often the grid fills the GPU; of a persistent kernel, whose blocks compute one tile after another, its tiles."""
    waves, grid, tile = kernel.residency.waves, kernel.key.grid, kernel.tile[:2]
    if waves is None or grid is None or mnk is None or len(tile) < 2:
        return waves
    tiles = min(ceil(mnk[0] / high) * ceil(mnk[1] / wide) for high, wide in (tile, tile[::-1]))
    return waves * max(tiles / prod(grid), 1.0)


def _heaviest(votes: Votes[V]) -> V:
    """The value with the most time; of equals, the smallest."""
    return min(votes, key=lambda value: (-votes[value], value is not None, value))


def kernel_sums(view: TraceView) -> list[KernelSums]:
    """The kernels of a trace's window; devices have their numbers in the trace."""
    rows, group, keys = group_kernels(view)
    if not len(rows):
        return []
    work, operations, count = view.work, view.trace.operations, len(keys)
    duration = (operations.end_ns - operations.start_ns)[rows].astype(np.int64)
    order = np.argsort(group, kind="stable")
    lengths = np.split(duration[order], np.searchsorted(group[order], np.arange(1, count)))
    first = np.zeros(count, np.int64)
    first[group[::-1]] = rows[::-1]

    def summed(column: NDArray[Any]) -> list[Any]:
        return list(sums(group, column, count).tolist())

    columns: dict[str, list[Any]] = {name: summed(getattr(work, name)[rows]) for name in _FLOATS}
    doubt = work.unsaturated[rows]
    judged, unsaturated = (summed(np.where(some, duration, 0)) for some in (doubt >= 0, doubt > 0))
    bound = _votes(group, work.bound[rows], duration, list(OperationBound))
    basis = _votes(group, work.basis[rows], duration, list(Basis))
    dtype = _votes(group, work.dtype[rows], duration, [*work.dtypes, None])
    mnk = _votes(group, work.product[rows], duration, [*work.products, None])
    origins = _origins(view, rows, group, duration, count)
    made = []
    for at, key in enumerate(keys):
        floats = {name: (column[at],) for name, column in columns.items()}
        example = int(first[at])
        known = work.class_of_name[int(operations.name[example])]
        made.append(
            KernelSums(
                key=key,
                short_name=known.short_name,
                family=known.family,
                tensor_core=known.tensor_core,
                residency=_residency(view, example),
                tile=known.tile or (),
                duration=(lengths[at],),
                bound=bound[at],
                basis=basis[at],
                dtype=dtype[at],
                mnk=mnk[at],
                flop=floats["flop"],
                dram_bytes=floats["dram_bytes"],
                compute_ns=floats["compute_ns"],
                memory_ns=floats["memory_ns"],
                judged_ns=judged[at],
                unsaturated_ns=unsaturated[at],
                **vars(origins[at]),
            )
        )
    return kernels_together(made)


def _residency(view: TraceView, row: int) -> Residency:
    device = int(view.trace.operations.device[row])
    launch = Launch.of(view.trace.operations, row, 0.0)
    return launch.residency(view.trace.devices[device], view.gpus[device])


def _votes(
    group: Column, code: NDArray[Any], duration: Column, values: Sequence[Any]
) -> list[dict[Any, int]]:
    """The time of each value in each group; codes index into the values, and -1 is their last."""
    found: list[dict[Any, int]] = [{} for _ in range(int(group.max()) + 1)]
    # Kernels of no duration still have one vote.
    for at, times in weights_by_pair(group, code.astype(np.int64) % len(values), duration * 2 + 1).items():
        found[at] = {values[each]: ns for each, ns in times.items()}
    return found


def _known_sides(values: tuple[int, ...]) -> Dim3 | None:
    x, y, z = values
    return None if -1 in values else (x, y, z)


def input_shapes(view: TraceView, rows: Column) -> tuple[Column, list[Shapes | None]]:
    """The shapes that each kernel's operator took, as indices into a list whose last is unknown."""
    numbers = np.full(len(rows), -1, np.int64)
    shapes: dict[Shapes, int] = {}
    own = view.launches.operator[rows]
    sources = [(view, np.arange(len(rows)), own)]
    if view.operator_trace is not None:
        matched = np.flatnonzero((own < 0) & (view.match[rows] >= 0))
        sources.append(
            (view.operator_trace, matched, view.operator_trace.launches.operator[view.match[rows[matched]]])
        )
    for source, at, operator in sources:
        at, operator = at[operator >= 0], operator[operator >= 0]
        texts, which = np.unique(source.trace.ranges.shapes[operator], return_inverse=True)
        found = [tensor_shapes(source.trace.strings[t]) if t >= 0 else None for t in texts.tolist()]
        number = [-1 if each is None else shapes.setdefault(each, len(shapes)) for each in found]
        numbers[at] = np.array(number, np.int64)[which] if len(at) else numbers[at]
    return numbers, [*shapes, None]


def _origins(view: TraceView, rows: Column, group: Column, duration: Column, count: int) -> list[Origins]:
    """What launched the kernels of each group: phases, operators, modules and call sites."""
    found = [Origins() for _ in range(count)]
    path = view.phases.path_of(view.phases.of_operation[rows])
    counts = weights_by_pair(group, path, np.ones(len(path), np.int64))
    for at, by_path in weights_by_pair(group, path, duration).items():
        found[at].phases.update(
            {
                view.phases.paths[each]: PhaseTime(ns=ns, count=counts[at][each])
                for each, ns in by_path.items()
            }
        )
    _count_operators(found, group, view, rows)
    if view.operator_trace is not None:
        matched = view.match[rows]
        known = (matched >= 0) & (view.launches.operator[rows] < 0)
        _count_operators(found, group[known], view.operator_trace, matched[known])
    add_call_sites(found, view, rows, group)
    return found


def _count_operators(origins: Sequence[Origins], group: Column, view: TraceView, rows: Column) -> None:
    operator, ranges = view.launches.operator[rows], view.trace.ranges
    name_of = np.where(operator >= 0, ranges.name[np.maximum(operator, 0)] if len(ranges) else -1, -1)
    for at, by_name in weights_by_pair(group, name_of, np.ones(len(name_of), np.int64)).items():
        most = {view.trace.strings[each]: count for each, count in list(by_name.items())[:20]}
        origins[at].operators.update(added(origins[at].operators, most))


_BOUND_NAMES: Final[Mapping[OperationBound, KernelBound]] = {
    OperationBound.COMPUTE: "compute",
    OperationBound.MEMORY: "memory",
    OperationBound.OVERHEAD: "overhead",
    OperationBound.COMMUNICATION: "communication",
    OperationBound.TRANSFER: "unknown",
    OperationBound.UNKNOWN: "unknown",
}
_BASIS_NAMES: Final[Mapping[Basis, BasisName]] = {Basis[name.upper()]: name for name in get_args(BasisName)}


def _efficiency(term_ns: float, total_ns: int) -> float | None:
    if not isfinite(term_ns) or not total_ns:
        return None
    efficiency = term_ns / total_ns
    return efficiency if efficiency <= MOST_EFFICIENT else None


def _known(value: float) -> int | None:
    return round(value) if isfinite(value) else None


def _rate(amount: float, total_ns: int, per: float) -> float | None:
    """``amount`` per ns divided by ``per``: bytes per ns are GB/s, FLOP per ns are GFLOP/s."""
    return amount / total_ns / per if isfinite(amount) and total_ns else None
