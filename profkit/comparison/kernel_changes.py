"""Kernels of two sides, matched by name, or by what they do where names changed with a version or a compiler."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from profkit.comparison.rows import KernelChange, MatchedBy
from profkit.comparison.side import Side

__all__ = ["kernel_changes"]

_TYPE: Final = re.compile(r"\b(?:bf16|fp16|fp32|fp64|tf32|fp8|SIMT)\b|<[^<>]*>|\bsm_?\d+\w*")


@dataclass
class _Kernels:
    """The launches of one side that share a key."""

    names: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    short_name: str = ""
    family: str = ""
    total_ns: int = 0
    count: float = 0
    """Launches per step."""

    def add(self, other: _Kernels) -> None:
        self.short_name = self.short_name if self.total_ns >= other.total_ns else other.short_name
        self.family = self.family if self.total_ns >= other.total_ns else other.family
        self.names += other.names
        self.operators += other.operators
        self.shapes += other.shapes
        self.total_ns += other.total_ns
        self.count += other.count

    @property
    def name(self) -> str:
        return self.names.most_common(1)[0][0]

    @property
    def operator(self) -> str | None:
        return self.operators.most_common(1)[0][0] if self.operators else None


def kernel_changes(before: Side, after: Side) -> list[KernelChange]:
    """The kernels of both sides, those whose time changed most first.

    Kernels are matched by name; those left over by their short name, which has no compiler's decoration; then by
    operator and launch shape; then by family and operator; then by family, launch shape and count; then by the
    short name without data types. A key that several kernels of a side share unites them. What is still left over
    is new or gone.
    Times are sums of durations per typical step: kernels that overlap count both.
    """
    sides = _by_name(before), _by_name(after)
    pairs: list[tuple[MatchedBy, _Kernels | None, _Kernels | None]] = []
    for word, key_of in _KEYS:
        left, right = (_united(side, key_of) for side in sides)
        for key in [key for key in left if key in right]:
            pairs.append((word, left[key], right[key]))
            for side, kernels in zip(sides, (left[key], right[key]), strict=True):
                for name in kernels.names:
                    del side[name]
    pairs += [("none", kernels, None) for kernels in sides[0].values()]
    pairs += [("none", None, kernels) for kernels in sides[1].values()]
    rows = [_row(word, left, right, before, after) for word, left, right in pairs]
    return sorted(rows, key=lambda row: (-abs(row.delta_ns), row.name or "", row.name_after or ""))


def _by_name(side: Side) -> dict[str, _Kernels]:
    found: dict[str, _Kernels] = {}
    for row in side.kernels:
        shape = f"{row.grid} {row.block}"
        found.setdefault(row.name, _Kernels()).add(
            _Kernels(
                Counter({row.name: row.total_ns + 1}),
                Counter(row.operators),
                Counter({shape: row.total_ns + 1}),
                row.short_name,
                row.family,
                row.total_ns,
                side.per_step(row.count),
            )
        )
    return found


def _united(side: dict[str, _Kernels], key_of: Callable[[_Kernels], object]) -> dict[object, _Kernels]:
    found: dict[object, _Kernels] = {}
    for kernels in side.values():
        key = key_of(kernels)
        if key is not None:
            found.setdefault(key, _Kernels()).add(kernels)
    return found


def _operator_and_shape(kernels: _Kernels) -> object:
    shape = kernels.shapes.most_common(1)[0][0]
    return (kernels.operator, shape) if kernels.operator and "None" not in shape else None


def _family_shape_and_count(kernels: _Kernels) -> object:
    shape = kernels.shapes.most_common(1)[0][0]
    return None if "None" in shape else (kernels.family, shape, round(kernels.count, 2))


_KEYS: Final[Iterable[tuple[MatchedBy, Callable[[_Kernels], object]]]] = (
    ("name", lambda k: k.name),
    ("short name", lambda k: (k.family, k.short_name)),
    ("operator and shape", _operator_and_shape),
    ("operator", lambda k: (k.family, k.operator) if k.operator else None),
    ("shape", _family_shape_and_count),
    (
        "function",
        lambda k: (k.family, _TYPE.sub("", k.short_name).strip()) if _TYPE.search(k.short_name) else None,
    ),
)


def _row(
    word: MatchedBy, left: _Kernels | None, right: _Kernels | None, before: Side, after: Side
) -> KernelChange:
    known = left or right
    assert known is not None
    was = round(before.busy_per_step(left.total_ns)) if left else 0
    now = round(after.busy_per_step(right.total_ns)) if right else 0
    return KernelChange(
        name=left.name if left else None,
        name_after=right.name if right else None,
        short_name=known.short_name,
        family=known.family,
        matched_by=word,
        before_ns=was,
        after_ns=now,
        delta_ns=now - was,
        count_before=round(left.count, 2) if left else 0,
        count_after=round(right.count, 2) if right else 0,
    )
