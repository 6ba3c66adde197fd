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
_SHORT_FORMATS: Final = ("fp16", "bf16")


def numerics_rows(recordings: Sequence[Trace | MemoryHistory]) -> list[Numerics]:
    """The recordings of numerics among some recordings, each with its findings."""
    found = [r.numerics for r in recordings if isinstance(r, Trace) and r.numerics is not None]
    return [replace(row, findings=[*_findings(row)]) for row in found]


def _findings(numerics: Numerics) -> Iterator[Finding]:
    yield from _non_finite(numerics)
    for kind in ("gradient", "weight_gradient", "activation"):
        yield from _below(numerics, kind)
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
                "tensors": len(shares),
            }  # fmt: skip
            yield Finding("below-range", Severity.WARNING, count=len(lost), params=params)


def _below_share(row: TensorRow) -> float:
    return row.below / max(row.values - row.zeros, 1)


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
        "first": f"{scale.scales[0]:g}",
        "last": f"{scale.scales[-1]:g}",
    }
    severity = Severity.WARNING if often else Severity.INFO
    yield Finding("steps-skipped", severity, count=len(scale.skipped), params=params)
