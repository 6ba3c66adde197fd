"""Rows of a report about number formats: which arithmetic ran where, which types operators took, and TF32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from profkit.model.rows import Count, Ns, Row

__all__ = ["Autocast", "AutocastOperator", "Cast", "OperatorTypes", "PrecisionRow", "Tf32Row", "Tf32Work"]

Tf32Work: TypeAlias = Literal["products", "convolutions"]
"""Work that TF32 can speed up: each has a switch of its own."""


class PrecisionRow(Row, frozen=True, kw_only=True):
    """Which arithmetic ran in a phase: products apart from everything else."""

    phase: str | None
    """Its path; None outside of phases."""
    dtype: str | None
    """The type that was computed in; ``tf32`` where Tensor Cores took fp32."""
    tensor_core: bool | None
    """On Tensor Cores, or on CUDA cores."""
    matrix: bool = False
    """Whether it is matrix products, convolutions or attention."""
    ns: Ns
    """Summed time of the kernels."""
    flop: Count | None
    """Floating-point operations of the launches whose work is known; None where none is."""
    flop_ns: Ns = 0
    """The time of those launches."""
    count: Count
    """Launches."""


class OperatorTypes(Row, frozen=True, kw_only=True):
    """Which types an operator took, and what its kernels computed in and wrote."""

    name: str
    """``aten::mm``."""
    takes: Sequence[str]
    """The types of its tensors, in order; empty where the recording has none."""
    computes: str | None
    """The type that its kernels computed in."""
    gives: str | None
    """The type that they wrote, where their names tell."""
    tensor_core: bool | None
    """On Tensor Cores, or on CUDA cores."""
    matrix: bool
    """Whether its kernels are matrix products, convolutions or attention."""
    ns: Ns
    """Summed time of the kernels."""
    count: Count
    """Launches."""


class Tf32Row(Row, frozen=True, kw_only=True):
    """Whether products of fp32 matrices ran in TF32."""

    work: Tf32Work
    """Which of the two."""
    tf32_ns: Ns
    """Time of kernels that took fp32 to Tensor Cores: any shows that TF32 is on."""
    fp32_ns: Ns
    """Time of kernels that computed in fp32 on CUDA cores."""
    switch: str
    """What turns it on, in the version of torch that made the file."""


Cast: TypeAlias = Literal[
    "kept-in-fp32", "fp32-operand", "promoted", "loss-outside", "norm-outside", "product-outside", "around-backward",
    "custom-backward", "other-type-by-hand", "cast-undone", "norm-cast-twice", "weights-cast-again",
]  # fmt: skip
"""What happened to an operator: kept in fp32 by autocast's lists, or one of the accidents."""


class AutocastOperator(Row, frozen=True, kw_only=True):
    """An operator that autocast kept in fp32, or that something in the program made an accident of."""

    name: str
    """``aten::layer_norm``."""
    code: Cast
    """What happened to it."""
    by_design: bool
    """Whether autocast's lists ask for it; else it is an accident."""
    phase: str | None
    """The path of the phase around it."""
    where: str | None
    """The line of the program: ``train.py:12 step``; None without stacks."""
    takes: str
    """Types and shapes of its tensors, of accidents: ``bf16 [8, 512, 768], fp32 [768]``."""
    ns: Ns
    """Summed device time: of the operator, or of the casts where these are the accident."""
    count: Count
    """Calls, or casts of weights."""


class Autocast(Row, frozen=True, kw_only=True):
    """What autocast did, and what it left in fp32."""

    types: Sequence[str]
    """The types of its regions; none where a program computes in 16 bits without autocast."""
    casts: Count
    """Casts that it added."""
    casts_ns: Ns
    """Their device time."""
    fp32_by_design_ns: Ns
    """In operations that its lists keep in fp32."""
    fp32_by_accident_ns: Ns
    """In what the program made an accident of."""
    operators: Sequence[AutocastOperator]
    """Where, accidents first, most time first."""
