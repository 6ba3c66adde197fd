"""Which operator call explains each kernel, and which part of its work the kernel does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from profkit.model import IntColumn, Trace
from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.convolution import GRADIENTS, convolution_results
from profkit.roofline.kernel_groups import group_rows, where_class
from profkit.roofline.operator_models import Answer, model_work
from profkit.roofline.operator_shapes import Call, parse_call

__all__ = ["Explained", "explain_kernels"]

_DEEPEST = 64
_NONE = -1
_TEXTS = ("name", "shapes", "dtypes", "strides", "scalars")


@dataclass(frozen=True, eq=False)
class Explained:
    """The formula's answer for each kernel."""

    work: NDArray[np.int64]
    """Index into `works`, or -1 where no formula applies."""
    fraction: NDArray[np.float64]
    """The part of that work that this kernel does."""
    works: list[Work] = field(default_factory=list)
    unmodelled: dict[str, int] = field(default_factory=dict)


def explain_kernels(
    trace: Trace,
    rows: NDArray[np.intp],
    classes: dict[int, KernelClass],
    operator_row: IntColumn,
    operator_parent: IntColumn,
) -> Explained:
    """Find each kernel's operator with a known formula, innermost first, and share its work among its kernels."""
    names = trace.operations.name[rows].astype(np.int64)
    current = np.asarray(operator_row)[rows].astype(np.int64)
    work, owner = np.full(len(rows), _NONE), np.full(len(rows), _NONE)
    formulas = _Formulas(trace, classes)
    pending = np.flatnonzero(current >= 0)
    for _ in range(_DEEPEST):
        if not len(pending):
            break
        answers = formulas.answers(current[pending], names[pending])
        found = answers >= 0
        work[pending[found]], owner[pending[found]] = answers[found], current[pending[found]]
        pending = pending[answers == formulas.climb]
        current[pending] = np.asarray(operator_parent)[current[pending]]
        pending = pending[current[pending] >= 0]
    fraction = _fractions(trace, rows, classes, work, owner, formulas.works)
    return Explained(work, fraction, formulas.works, _unmodelled(trace, rows, work, operator_row))


class _Formulas:
    """Answers of the formulas, each distinct (operator call, kernel name) asked once."""

    climb = -2

    def __init__(self, trace: Trace, classes: dict[int, KernelClass]) -> None:
        self.works: list[Work] = []
        self._trace, self._classes = trace, classes
        self._calls: dict[tuple[int, ...], Call] = {}
        self._known: dict[tuple[int, ...], int] = {}

    def answers(self, ranges: NDArray[np.int64], names: NDArray[np.int64]) -> NDArray[np.int64]:
        """For pairs of range row and kernel name: an index into `works`, -1 for none, or `climb`."""
        columns = [getattr(self._trace.ranges, column)[ranges] for column in _TEXTS]
        first, group = group_rows([*columns, names])
        keys = zip(*(column[first].tolist() for column in (*columns, names)), strict=True)
        found = np.array([self._answer(key) for key in keys], dtype=np.int64)
        return found[group]

    def _answer(self, key: tuple[int, ...]) -> int:
        if key not in self._known:
            answer = model_work(self._call(key[:-1]), self._classes[key[-1]])
            if isinstance(answer, Answer):
                self._known[key] = self.climb if answer is Answer.CLIMB else _NONE
            else:
                self._known[key] = len(self.works)
                self.works.append(answer)
        return self._known[key]

    def _call(self, ids: tuple[int, ...]) -> Call:
        if ids not in self._calls:
            texts = [self._trace.strings[i] if i >= 0 else "" for i in ids]
            call = parse_call(*texts)
            if "conv" in call.name and len(call.inputs) > 1 and not call.scalars:
                shapes = tuple(tensor.shape for tensor in map(call.tensor, (0, 1)) if tensor)
                call = replace(call, result=self._results.get(shapes, ()))
            self._calls[ids] = call
        return self._calls[ids]

    @cached_property
    def _results(self) -> dict[tuple[tuple[int, ...], ...], tuple[int, ...]]:
        """Shapes of convolutions' results, for recordings without the arguments that give them."""
        ranges, strings = self._trace.ranges, self._trace.strings
        names = [i for i, text in enumerate(strings) if text.rpartition("::")[2] in GRADIENTS]
        shapes = np.unique(ranges.shapes[np.isin(ranges.name, names)])
        return convolution_results(parse_call("", strings[i], "", "", "") for i in shapes.tolist() if i >= 0)


def _fractions(
    trace: Trace,
    rows: NDArray[np.intp],
    classes: dict[int, KernelClass],
    work: NDArray[np.int64],
    owner: NDArray[np.int64],
    works: list[Work],
) -> NDArray[np.float64]:
    """Kernels of one call with one role share its work: by blocks for lists of tensors, else by duration."""
    fraction = np.ones(len(rows))
    shared = np.flatnonzero(work >= 0)
    if not len(shared):
        return fraction
    names = sorted({item.role for item in works})
    role_of_work = np.array([names.index(item.role) for item in works])
    whole = np.array([item.whole for item in works])[work[shared]]
    role = role_of_work[work[shared]]
    operations, ids = trace.operations, rows[shared]
    duration = np.maximum(operations.end_ns[ids] - operations.start_ns[ids], 1).astype(float)
    blocks = np.maximum(operations.grid_x[ids], 1).astype(float)
    listed = where_class(operations.name[ids], classes, lambda kernel: kernel.family is Family.OPTIMIZER)
    weight = np.where(listed, blocks, duration)
    _, group = group_rows([owner[shared], role])
    fraction[shared] = np.where(whole, 1.0, weight / np.bincount(group, weight)[group])
    return fraction * _halves(owner, role, shared, names)


def _halves(
    owner: NDArray[np.int64], role: NDArray[np.int64], shared: NDArray[np.intp], names: list[str]
) -> NDArray[np.float64]:
    """Of a convolution's gradients, the kernels without a direction do what the named ones leave."""
    factor = np.ones(len(owner))
    if "either" not in names:
        return factor
    named = [names.index(name) for name in ("dgrad", "wgrad") if name in names]
    calls = owner[shared]
    taken = np.isin(calls, calls[np.isin(role, named)])
    factor[shared[taken & (role == names.index("either"))]] = 0.5
    return factor


def _unmodelled(
    trace: Trace, rows: NDArray[np.intp], work: NDArray[np.int64], operator_row: IntColumn
) -> dict[str, int]:
    """Operators with kernels that no formula explains, most kernels first."""
    left = np.asarray(operator_row)[rows[work < 0]]
    names = trace.ranges.name[left[left >= 0]]
    counted = Counter(names.tolist())
    return {trace.strings[i] if i >= 0 else "": count for i, count in counted.most_common()}
