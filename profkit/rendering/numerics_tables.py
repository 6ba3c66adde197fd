"""What tensors held, as every renderer shows it: one row a tensor, with its histogram over exponents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profkit.model.report_numerics import FIRST_EXPONENT, LossScale, Numerics, TensorRow, UpdateRow
from profkit.rendering.digest import share_text, where_text
from profkit.rendering.document import Document
from profkit.rendering.sentences.numerics import TENSORS, scale_text
from profkit.units import count_text, noun_text

__all__ = ["NumericsSection", "NumericsTableRow", "UpdateTableRow", "numerics_sections"]

_LOWEST, _HIGHEST, _WIDTH = -40, 20, 4
"""Exponents of the histogram, and how many are one character of it."""
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_NOTABLE_BELOW: Final = 0.05
_FP16_ZERO, _FP16_INFINITE = -25, 16
"""What is below 2**-25 fp16 rounds to zero, and 2**16 and more to infinity."""


@dataclass(frozen=True)
class NumericsTableRow:
    """A tensor of a module or parameter, in words."""

    label: str
    dtype: str
    zeros: str
    below: str
    """Below the format's smallest normal number, of what is not zero."""
    lost: str
    """What a cast to fp16 makes zero or infinite, of what is neither."""
    not_finite: str
    norm: str
    """In the first and the last sampled step."""
    range: str
    histogram: str


@dataclass(frozen=True)
class UpdateTableRow:
    """A parameter's updates, in words."""

    name: str
    dtype: str
    ratio: str
    """In the first and the last sampled step."""
    swallowed: str


@dataclass(frozen=True)
class NumericsSection:
    """What one recording of numerics shows."""

    note: str
    lines: Sequence[str]
    rows: Sequence[NumericsTableRow]
    first: Sequence[NumericsTableRow]
    """The same, those that lose values or are not finite before the others."""
    updates: Sequence[UpdateTableRow]
    scale: str
    """What the histogram's characters stand for."""


def numerics_sections(report: Document) -> list[NumericsSection]:
    """One section for each recording of numerics, tensors in the order of execution."""
    return [
        NumericsSection(
            note=_note(numerics),
            lines=[row.message for row in numerics.findings] + _scale_lines(numerics.loss_scale),
            rows=[_row(row) for row in numerics.tensors],
            first=[_row(row) for row in sorted(numerics.tensors, key=lambda row: not _is_notable(row))],
            updates=[_update(row) for row in numerics.updates],
            scale=f"2^{_LOWEST} to 2^{_HIGHEST}",
        )
        for numerics in report.numerics
    ]


def _is_notable(row: TensorRow) -> bool:
    """Whether something in it is not finite, or not a number that its format keeps."""
    zero = row.tensor != "activation" and row.zeros == row.values
    return zero or row.infinite + row.nan > 0 or row.below >= _NOTABLE_BELOW * max(row.values - row.zeros, 1)


def _note(numerics: Numerics) -> str:
    looked = f"{noun_text(len(numerics.steps), 'step')} of {count_text(numerics.step_count)} looked at"
    rank = None if numerics.rank is None else f"rank {numerics.rank}"
    return where_text(numerics.model, rank, looked)


def _scale_lines(scale: LossScale | None) -> list[str]:
    if scale is None:
        return []
    shown = [
        f"{scale_text(value)} from step {step}" for step, value in zip(scale.steps, scale.scales, strict=True)
    ]
    more = f", then {noun_text(len(shown) - 6, 'change')} more" if len(shown) > 6 else ""
    return [
        f"Loss scale: {', '.join(shown[:6])}{more}. It grew {noun_text(len(scale.grown), 'time')}; "
        f"{noun_text(len(scale.skipped), 'step')} skipped."
    ]


def _row(row: TensorRow) -> NumericsTableRow:
    here = row.values - row.zeros
    finite = here - row.infinite - row.nan
    lost = sum(row.exponents[: _FP16_ZERO - FIRST_EXPONENT]) + sum(
        row.exponents[_FP16_INFINITE - FIRST_EXPONENT : -1]
    )
    return NumericsTableRow(
        label=f"{row.name} {TENSORS[row.tensor]}",
        dtype=row.dtype,
        zeros=share_text(row.zeros / row.values if row.values else None),
        below=share_text(row.below / here if here else None),
        lost=share_text(lost / finite if finite else None),
        not_finite=count_text(row.infinite + row.nan),
        norm=_first_and_last(row.norms),
        range=_range(row),
        histogram=_histogram(row.exponents),
    )


def _range(row: TensorRow) -> str:
    known = [value for value in row.largest if value is not None]
    if row.smallest is None or not known:
        return "–"
    return f"{row.smallest:.1e} … {max(known):.1e}"


def _update(row: UpdateRow) -> UpdateTableRow:
    swallowed = share_text(row.swallowed / row.values if row.values else None)
    # Weights that begin at zero have no ratio yet.
    return UpdateTableRow(row.name, row.dtype, _first_and_last(row.ratios, none="undefined"), swallowed)


def _first_and_last(values: Sequence[float | None], none: str = "not finite") -> str:
    shown = [none if value is None else f"{value:.2e}" for value in values]
    return " → ".join(dict.fromkeys([*shown[:1], *shown[-1:]])) or "–"


def _histogram(exponents: Sequence[int]) -> str:
    """A character for each few exponents; what lies outside is in the first and last, infinities and NaN in none."""
    low, high = _LOWEST - FIRST_EXPONENT, _HIGHEST - FIRST_EXPONENT
    groups = [sum(exponents[at : at + _WIDTH]) for at in range(low, high, _WIDTH)]
    groups[0] += sum(exponents[:low])
    groups[-1] += sum(exponents[high:-1])
    most = max(groups) or 1
    return "".join("·" if not n else _LEVELS[min(7, n * 8 // most)] for n in groups)
