"""What a program's tensors held: the file that `profkit.numerics` writes, and the section of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from profkit.model.findings import Finding
from profkit.model.rows import Count, Row

__all__ = [
    "FIRST_EXPONENT",
    "LossScale",
    "NonFinite",
    "Numerics",
    "NumericsFile",
    "TensorKind",
    "TensorRow",
    "UpdateRow",
]

FIRST_EXPONENT: Final = -127
"""The exponent of `TensorRow.exponents` [0], which holds what is below 2**-126, without zeros; the last holds inf and NaN."""

TensorKind: TypeAlias = Literal["activation", "gradient", "weight_gradient"]
"""The output of a module, the gradient of that, and the gradient of a parameter."""


class TensorRow(Row, frozen=True, kw_only=True):
    """What a module's output, its gradient, or a parameter's gradient held in the sampled steps."""

    name: str
    """The module's or parameter's: ``layers.11.linear``; the model's class for the model itself."""
    tensor: TensorKind
    """Which tensor of it."""
    dtype: str
    """``fp32``, ``fp16``, ``bf16`` or ``fp64``."""
    steps: Sequence[int]
    """The sampled steps in which it was there."""
    norms: Sequence[float | None]
    """Its Euclidean norm in each; None where it is not finite. Like ``largest`` of all its values."""
    largest: Sequence[float | None]
    """Its largest magnitude in each; None where it is not finite."""
    smallest: float | None
    """The smallest magnitude over the steps, without zeros, of the values that were looked at."""
    values: Count
    """Values that were looked at, over the steps: all of a small tensor, evenly chosen ones of a large one."""
    zeros: Count
    """How many of them are zero."""
    below: Count
    """How many are not zero and below the smallest normal number of the format."""
    infinite: Count
    """How many are infinite."""
    nan: Count
    """How many are not a number."""
    exponents: Sequence[Count]
    """How many have each exponent, from `FIRST_EXPONENT` on: 2**e <= magnitude < 2**(e + 1)."""


class UpdateRow(Row, frozen=True, kw_only=True):
    """How much the optimizer changed a parameter in the sampled steps."""

    name: str
    """The parameter's."""
    dtype: str
    """The format that it is kept in."""
    steps: Sequence[int]
    """The sampled steps in which the optimizer changed it."""
    ratios: Sequence[float | None]
    """The norm of the change over the norm of the parameter, in each; None where the parameter is zero or not finite."""
    values: Count
    """Values with a gradient that were looked at, over the steps."""
    swallowed: Count
    """How many of them the step left as they were."""


class LossScale(Row, frozen=True, kw_only=True):
    """The history of a ``GradScaler``."""

    steps: Sequence[int]
    """The first step of each scale."""
    scales: Sequence[float]
    """The scales."""
    skipped: Sequence[int]
    """Steps that were skipped, since gradients were not finite."""
    grown: Sequence[int]
    """Steps after which the scale grew."""


class NonFinite(Row, frozen=True, kw_only=True):
    """The first place, in the order of execution, where a step held an infinity or NaN."""

    step: Count
    """The step."""
    value: Literal["inf", "nan"]
    """Which of the two."""
    name: str
    """The module or parameter."""
    tensor: TensorKind
    """Which tensor of it."""
    clean_step: Count | None
    """The sampled step before it, which had none; None where there is none."""


class Numerics(Row, frozen=True, kw_only=True):
    """What a program's tensors held in sampled steps."""

    path: str = ""
    """The file's base name."""
    rank: int | None = None
    """The rank of a distributed program."""
    model: str = ""
    """The class of the model."""
    every: Count
    """Every so many steps were looked at."""
    step_count: Count
    """The steps that the program made."""
    steps: Sequence[int]
    """The steps that were looked at, from 0 on."""
    tensors: Sequence[TensorRow]
    """In the order of execution."""
    updates: Sequence[UpdateRow]
    """By parameter."""
    loss_scale: LossScale | None
    """None without a ``GradScaler``."""
    non_finite: Sequence[NonFinite]
    """At most one of each value for each sampled step, the earliest first."""
    findings: Sequence[Finding] = ()
    """What is wrong with them; of a file still to be found."""


class NumericsFile(Numerics, frozen=True, kw_only=True, tag_field="schema", tag="profkit.numerics/1"):
    """``numerics.json``."""

    tool_version: str
    """The version of profkit."""
    facts: Mapping[str, str]
    """``torch``: its version; ``device``: the kind of device."""
