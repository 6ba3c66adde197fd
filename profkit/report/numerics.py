"""What recordings of numerics show: values that are not finite, lost gradients, updates that weights swallow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from profkit.model import Finding, Severity, Trace
from profkit.model.findings import Param
from profkit.model.memory_history import MemoryHistory
from profkit.model.report_numerics import Numerics, TensorKind, TensorRow
from profkit.model.rows import replace

__all__ = ["numerics_rows"]

_NOTABLE_BELOW: Final = 0.05
"""Share of a tensor's values, without zeros, under the smallest normal number of its format."""
_NOTABLE_SWALLOWED: Final = 0.10
_NOTABLE_SKIPPED: Final = 0.05
_USUAL_SKIPS: Final = 10
"""A scaler that starts at 65536 finds its scale within so many skipped steps."""
_FEWEST_STEPS: Final = 2
"""In the first step gradients may be zero by design, behind weights that begin at zero."""
_SHORT_FORMATS: Final = ("fp16", "bf16")


def numerics_rows(recordings: Sequence[Trace | MemoryHistory]) -> list[Numerics]:
    """The recordings of numerics among some recordings, each with its findings."""
    found = [r.numerics for r in recordings if isinstance(r, Trace) and r.numerics is not None]
    return [replace(row, findings=[*_findings(row)]) for row in found]


def _findings(numerics: Numerics) -> Iterator[Finding]:
    yield from _non_finite(numerics)
    for kind in ("gradient", "weight_gradient", "activation"):
        yield from _below(numerics, kind)
    yield from _all_zero(numerics)
    yield from _swallowed(numerics)
    yield from _skipped(numerics)


def _non_finite(numerics: Numerics) -> Iterator[Finding]:
    """The first NaN and the first infinity; what a scaler caught is no harm."""
    skipped = set(numerics.loss_scale.skipped if numerics.loss_scale else ())
    for value in ("nan", "inf"):
        places = [row for row in numerics.non_finite if row.value == value]
        harmful = [row for row in places if row.step not in skipped]
        if not harmful:
            continue
        first = harmful[0]
        params: dict[str, Param] = {
            "name": first.name,
            "tensor": first.tensor,
            "step": first.step,
            "clean_step": first.clean_step,
            "dtype": next(
                (t.dtype for t in numerics.tensors if (t.name, t.tensor) == (first.name, first.tensor)), None
            ),
        }
        yield Finding(f"{value}-found", Severity.ERROR, count=len(harmful), params=params)


def _below(numerics: Numerics, kind: TensorKind) -> Iterator[Finding]:
    """Tensors of a format that lose values at its lower end, the worst by name."""
    for dtype in ("fp16", "bf16", "fp32"):
        shares = {
            row.name: (_below_share(row), row.zeros / max(row.values, 1))
            for row in numerics.tensors
            if row.tensor == kind and row.dtype == dtype
        }
        lost = {name: share for name, share in shares.items() if share[0] >= _NOTABLE_BELOW}
        if lost:
            worst = max(lost, key=lambda name: lost[name][0])
            below, zero = lost[worst]
            params: dict[str, Param] = {
                "name": worst, "tensor": kind, "dtype": dtype, "share": below, "zero_share": zero,
                "tensors": len(shares), "scaled": numerics.loss_scale is not None,
            }  # fmt: skip
            yield Finding("below-range", Severity.WARNING, count=len(lost), params=params)


def _below_share(row: TensorRow) -> float:
    return row.below / max(row.values - row.zeros, 1)


def _all_zero(numerics: Numerics) -> Iterator[Finding]:
    """Gradients that are zero in every step that was looked at: a format lost them, or nothing depends on them."""
    gradients = [row for row in numerics.tensors if row.tensor != "activation" and row.values]
    zero = [row for row in gradients if row.zeros == row.values]
    if not zero or len(numerics.steps) < _FEWEST_STEPS:
        return
    in_fp16 = any(row.dtype == "fp16" for row in gradients)
    params: dict[str, Param] = {
        "name": zero[0].name, "tensor": zero[0].tensor, "tensors": len(gradients), "fp16": in_fp16,
        "scaled": numerics.loss_scale is not None,
    }  # fmt: skip
    severity = Severity.WARNING if in_fp16 else Severity.INFO
    yield Finding("gradients-zero", severity, count=len(zero), params=params)


def _swallowed(numerics: Numerics) -> Iterator[Finding]:
    for dtype in _SHORT_FORMATS:
        rows = [row for row in numerics.updates if row.dtype == dtype]
        share = sum(row.swallowed for row in rows) / max(sum(row.values for row in rows), 1)
        if share >= _NOTABLE_SWALLOWED:
            worst = max(rows, key=lambda row: row.swallowed / max(row.values, 1))
            params: dict[str, Param] = {
                "dtype": dtype, "share": share, "name": worst.name,
                "worst_share": worst.swallowed / max(worst.values, 1),
            }  # fmt: skip
            yield Finding("updates-swallowed", Severity.WARNING, count=len(rows), params=params)


def _skipped(numerics: Numerics) -> Iterator[Finding]:
    scale = numerics.loss_scale
    if scale is None or not scale.skipped:
        return
    often = len(scale.skipped) > max(_USUAL_SKIPS, _NOTABLE_SKIPPED * numerics.step_count)
    params: dict[str, Param] = {
        "steps": numerics.step_count,
        "first": scale.scales[0],
        "last": scale.scales[-1],
    }
    severity = Severity.WARNING if often else Severity.INFO
    yield Finding("steps-skipped", severity, count=len(scale.skipped), params=params)
