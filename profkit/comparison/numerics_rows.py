"""Rows of a comparison of two recordings of numerics."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.model.report_numerics import TensorKind
from profkit.model.rows import Row

__all__ = ["NumericsChange", "NumericsComparison"]


class NumericsChange(Row, frozen=True, kw_only=True):
    """A tensor in the first step in which it holds other values than before, beyond rounding."""

    step: int
    """The step, from 0 on."""
    name: str
    """The module's or parameter's."""
    tensor: TensorKind
    """Which tensor of it."""
    rank: int | None
    """The rank of a distributed program."""
    before: float | None
    """Its Euclidean norm; None where it is not finite."""
    after: float | None
    """The same after."""
    dtype_before: str
    """Its format."""
    dtype_after: str
    """The same after."""


class NumericsComparison(Row, frozen=True, kw_only=True):
    """Two recordings of numerics, compared."""

    steps: int
    """Steps that both looked at."""
    tensors: int
    """Tensors that both have in one of them."""
    changes: Sequence[NumericsChange]
    """Tensors that part: the earliest step first, then in the order of execution."""
    only_in_one: Sequence[str] = ()
    """Modules and parameters that one of the two has alone, in the order of execution; at most 20."""
