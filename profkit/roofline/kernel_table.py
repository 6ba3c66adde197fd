"""The kernel breakdown: one row a kernel, launch shape and operator's input shapes, most expensive first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind
from profkit.model.result import Row
from profkit.model.work import Basis, OperationBound
from profkit.roofline.kernel_origins import add_places, empty_places
from profkit.roofline.operator_shapes import tensor_shapes
from profkit.roofline.thresholds import MOST_EFFICIENT
from profkit.timeline.grouping import group_rows, medians, sums, weights_by_pair
from profkit.timeline.view import TraceView

__all__ = ["KernelKey", "group_kernels", "kernel_rows", "share_of_busy"]

Column = NDArray[np.int64]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]

_SHAPE: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


class KernelKey(NamedTuple):
    """What a row of the kernel table is about: persistent kernels have one grid for every size of their inputs."""

    name: str
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    shapes: Shapes | None
    """The shapes of the operator's inputs, where they are known."""

    @classmethod
    def of(cls, row: Row) -> KernelKey:
        """The key of a row of the table."""
        grid, block, shapes = row["grid"], row["block"], row["shapes"]
        return cls(
            row["name"],
            grid and tuple(grid),
            block and tuple(block),
            shapes and tuple(tuple(shape) for shape in shapes),
        )


def group_kernels(view: TraceView) -> tuple[Column, Column, list[KernelKey]]:
    """The kernels of a trace's window, by row of the kernel table.

    Returns:
        Their rows in `Trace.operations`, the group of each, and the key of each group; a key may occur twice.
    """
    operations = view.trace.operations
    rows = np.flatnonzero((operations.kind == OperationKind.KERNEL) & view.kept)
    numbers, shapes = _input_shapes(view, rows)
    group, example = group_rows(
        operations.name[rows], numbers, *(getattr(operations, c)[rows] for c in _SHAPE)
    )
    keys = []
    for at in example.tolist():
        row = rows[at]
        sides = tuple(int(getattr(operations, c)[row]) for c in _SHAPE)
        name = view.trace.strings[operations.name[row]]
        keys.append(KernelKey(name, _known_sides(sides[:3]), _known_sides(sides[3:]), shapes[numbers[at]]))
    return rows, group, keys


@dataclass(frozen=True, eq=False)
class _Launched:
    """The kernels of one view: its rows, the row of the table that each belongs to, and durations."""

    view: TraceView
    rows: Column
    group: Column
    duration: Column
    device_ids: list[int]


def kernel_rows(views: Sequence[TraceView], busy_ns: int, device_ids: Sequence[Sequence[int]]) -> list[Row]:
    """The kernels of the window.

    Args:
        views: The traces, with their windows.
        busy_ns: The busy time of the window, over the devices: shares are of this.
        device_ids: The report's id of each device of each trace.
    """
    keys: dict[KernelKey, int] = {}
    parts = [_launched(view, keys, ids) for view, ids in zip(views, device_ids, strict=True)]
    count = len(keys)
    group = np.concatenate([p.group for p in parts] or [np.empty(0, np.int64)])
    if not len(group):
        return []
    duration = np.concatenate([p.duration for p in parts])
    launches = np.bincount(group, minlength=count)
    total, median = sums(group, duration, count), medians(group, duration, count)
    least, most = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(least, group, duration)
    np.maximum.at(most, group, duration)
    work = _work(parts, count, total)
    rows = []
    for key, at in keys.items():
        rows.append(
            {
                "name": key.name,
                **work.identity[at],
                "grid": key.grid and list(key.grid),
                "block": key.block and list(key.block),
                "shapes": key.shapes and [list(shape) for shape in key.shapes],
                "count": int(launches[at]),
                "total_ns": int(total[at]),
                "mean_ns": round(int(total[at]) / int(launches[at])),
                "median_ns": int(median[at]),
                "min_ns": int(least[at]),
                "max_ns": int(most[at]),
                "share": share_of_busy(int(total[at]), busy_ns),
                **work.numbers[at],
                **work.owners[at],
            }
        )
    return sorted(
        rows, key=lambda r: (-r["total_ns"], r["name"], *(str(r[k]) for k in ("grid", "block", "shapes")))
    )


def share_of_busy(total_ns: int, busy_ns: int) -> float:
    """The part of the busy time that a kernel takes; never over 1, though its launches may run at once."""
    return min(1.0, total_ns / busy_ns) if busy_ns else 0.0


def _launched(view: TraceView, keys: dict[KernelKey, int], device_ids: Sequence[int]) -> _Launched:
    rows, group, own = group_kernels(view)
    number = np.array([keys.setdefault(key, len(keys)) for key in own], np.int64)
    operations = view.trace.operations
    duration = (operations.end_ns - operations.start_ns)[rows].astype(np.int64)
    return _Launched(view, rows, number[group] if len(group) else group, duration, list(device_ids))


def _known_sides(values: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if -1 in values else values


def _input_shapes(view: TraceView, rows: Column) -> tuple[Column, list[Shapes | None]]:
    """The shapes that each kernel's operator took, as indices into a list whose last is unknown."""
    numbers = np.full(len(rows), -1, np.int64)
    shapes: dict[Shapes, int] = {}
    own = view.launches.operator[rows]
    sources = [(view, np.arange(len(rows)), own)]
    if view.lender is not None:
        lent = np.flatnonzero((own < 0) & (view.match[rows] >= 0))
        sources.append((view.lender, lent, view.lender.launches.operator[view.match[rows[lent]]]))
    for source, at, operator in sources:
        at, operator = at[operator >= 0], operator[operator >= 0]
        texts, which = np.unique(source.trace.ranges.shapes[operator], return_inverse=True)
        found = [tensor_shapes(source.trace.strings[t]) if t >= 0 else None for t in texts.tolist()]
        number = [-1 if each is None else shapes.setdefault(each, len(shapes)) for each in found]
        numbers[at] = np.array(number, np.int64)[which] if len(at) else numbers[at]
    return numbers, [*shapes, None]


@dataclass(frozen=True)
class _Work:
    identity: list[Row]
    numbers: list[Row]
    owners: list[Row]


def _work(parts: Sequence[_Launched], count: int, total: Column) -> _Work:
    """Names, bounds and owners of each row of the table."""
    identity: list[Row] = [{}] * count
    owners: list[Row] = [{"phases": {}, "operators": {}, **empty_places()} for _ in range(count)]
    for part in parts:
        view, operations = part.view, part.view.trace.operations
        _, first = np.unique(part.group, return_index=True)
        for at, row in zip(part.group[first].tolist(), part.rows[first].tolist(), strict=True):
            made = view.work.class_of_name[int(operations.name[row])]
            identity[at] = {
                "short_name": made.short_name,
                "family": made.family,
                "tensor_core": made.tensor_core,
            }
        _add_owners(owners, part)
        add_places(owners, part.view, part.rows, part.group, part.device_ids)
    return _Work(identity, _numbers(parts, count, total), owners)


def _add_owners(owners: list[Row], part: _Launched) -> None:
    view = part.view
    path = view.phases.path_of(view.phases.of_operation[part.rows])
    counts = weights_by_pair(part.group, path, np.ones(len(path), np.int64))
    for at, by_path in weights_by_pair(part.group, path, part.duration).items():
        for each, ns in by_path.items():
            told = owners[at]["phases"].setdefault(view.phases.paths[each], {"ns": 0, "count": 0})
            told["ns"] += ns
            told["count"] += counts[at][each]
    _count_operators(owners, part.group, view, part.rows)
    if view.lender is not None:
        lent = view.match[part.rows]
        known = (lent >= 0) & (view.launches.operator[part.rows] < 0)
        _count_operators(owners, part.group[known], view.lender, lent[known])


def _count_operators(owners: list[Row], group: Column, view: TraceView, rows: Column) -> None:
    operator, ranges = view.launches.operator[rows], view.trace.ranges
    name_of = np.where(operator >= 0, ranges.name[np.maximum(operator, 0)] if len(ranges) else -1, -1)
    for at, by_name in weights_by_pair(group, name_of, np.ones(len(name_of), np.int64)).items():
        for each, launched in list(by_name.items())[:20]:
            name = view.trace.strings[each]
            owners[at]["operators"][name] = owners[at]["operators"].get(name, 0) + launched


def _numbers(parts: Sequence[_Launched], count: int, total: Column) -> list[Row]:
    def column(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(p.view.work, name)[p.rows] for p in parts])

    group = np.concatenate([p.group for p in parts])
    duration = np.concatenate([p.duration for p in parts])
    bound, basis = (
        _by_time(group, column("bound"), duration, count),
        _by_time(group, column("basis"), duration, count),
    )
    flop, dram = sums(group, column("flop"), count), sums(group, column("dram_bytes"), count)
    terms = {
        OperationBound.COMPUTE: sums(group, column("compute_ns"), count),
        OperationBound.MEMORY: sums(group, column("memory_ns"), count),
    }
    dtype, dtypes = _numbered([(p.view.work.dtype[p.rows], p.view.work.dtypes) for p in parts])
    product, products = _numbered([(p.view.work.product[p.rows], p.view.work.products) for p in parts])
    dtype, product = (_by_time(group, code + 1, duration, count) - 1 for code in (dtype, product))
    flagged = sums(group, np.where(column("unsaturated") > 0, duration, 0), count)
    judged = sums(group, np.where(column("unsaturated") >= 0, duration, 0), count)
    rows = []
    for at in range(count):
        side = OperationBound(int(bound[at]))
        efficiency = _efficiency(terms.get(side), at, int(total[at]))
        rows.append(
            {
                "dtype": dtypes[dtype[at]],
                "mnk": products[product[at]],
                "bound": _BOUND_NAMES[side],
                "basis": Basis(int(basis[at])).name.lower(),
                "efficiency": efficiency,
                "unsaturated": bool(flagged[at] * 2 > judged[at]) if judged[at] else None,
                "flop": _known(flop[at]),
                "dram_bytes": _known(dram[at]),
                "tflops": _rate(flop[at], total[at], 1e3),
                "gbs": _rate(dram[at], total[at], 1.0),
            }
        )
    return rows


def _numbered(parts: Sequence[tuple[NDArray[Any], Sequence[Any]]]) -> tuple[Column, list[Any]]:
    """Indices into the list of each part as indices into one list, whose last entry is None: -1 is unknown."""
    values = list(dict.fromkeys(value for _, known in parts for value in known))
    codes = [np.array([*map(values.index, known), -1], np.int64)[code] for code, known in parts]
    return np.concatenate(codes), [*values, None]


_BOUND_NAMES: Final = {
    b: "unknown" if b is OperationBound.TRANSFER else b.name.lower() for b in OperationBound
}


def _by_time(group: Column, code: NDArray[Any], duration: Column, count: int) -> Column:
    """The code with the most time in each group; of equals, the smallest."""
    codes = int(code.max(initial=0)) + 1
    # Kernels of no duration still have one vote.
    weight = sums(group * codes + code.astype(np.int64), duration * 2 + 1, count * codes).reshape(
        count, codes
    )
    heaviest: Column = weight.argmax(axis=1)
    return heaviest


def _efficiency(term_ns: NDArray[Any] | None, at: int, total_ns: int) -> float | None:
    if term_ns is None or not np.isfinite(term_ns[at]) or total_ns == 0:
        return None
    efficiency = float(term_ns[at]) / total_ns
    return efficiency if efficiency <= MOST_EFFICIENT else None


def _known(value: float) -> int | None:
    return round(float(value)) if np.isfinite(value) else None


def _rate(amount: float, total_ns: int, per: float) -> float | None:
    """``amount`` per ns divided by ``per``: bytes per ns are GB/s, FLOP per ns are GFLOP/s."""
    return float(amount) / int(total_ns) / per if np.isfinite(amount) and total_ns else None
