"""What tensors held, step by step, on the host: it grows to a bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from profkit.model.report_numerics import LossScale, NonFinite, TensorKind, TensorRow, UpdateRow
from profkit.recording.tensor_statistics import BINS, Statistics

__all__ = ["MOST_SAMPLES", "Histories", "ScaleHistory", "TensorHistory", "UpdateHistory"]

MOST_SAMPLES: Final = 256
"""Sampled steps that are kept by themselves; with more, every second one is dropped. Counts are of all."""
_MOST_CHANGES: Final = 1000
_MOST_NON_FINITE: Final = 100


class TensorHistory:
    """What one tensor held in the sampled steps."""

    def __init__(self, name: str, tensor: TensorKind, dtype: str) -> None:
        self.name, self.tensor, self.dtype = name, tensor, dtype
        self._steps: list[int] = []
        self._norms: list[float | None] = []
        self._largest: list[float | None] = []
        self._smallest = math.inf
        self._counts = [0] * 5
        self._exponents = [0] * BINS

    def add(self, step: int, found: Statistics) -> None:
        """Add one step."""
        self._steps.append(step)
        finite = math.isfinite(found.largest)
        self._norms.append(found.norm if finite and math.isfinite(found.norm) else None)
        self._largest.append(found.largest if finite else None)
        self._smallest = min(self._smallest, found.smallest)
        counts = (found.values, found.zeros, found.below, found.infinite, found.nan)
        self._counts = [a + b for a, b in zip(self._counts, counts, strict=True)]
        self._exponents = [a + b for a, b in zip(self._exponents, found.exponents, strict=True)]

    def thin(self, every: int) -> None:
        """Keep the single steps that are multiples of ``every``."""
        kept = [at for at, step in enumerate(self._steps) if step % every == 0]
        self._steps = [self._steps[at] for at in kept]
        self._norms, self._largest = [self._norms[at] for at in kept], [self._largest[at] for at in kept]

    def row(self) -> TensorRow:
        """As the file has it."""
        values, zeros, below, infinite, nan = self._counts
        smallest = self._smallest if math.isfinite(self._smallest) else None
        return TensorRow(
            name=self.name, tensor=self.tensor, dtype=self.dtype, steps=self._steps, norms=self._norms,
            largest=self._largest, smallest=smallest, values=values, zeros=zeros, below=below,
            infinite=infinite, nan=nan, exponents=self._exponents,
        )  # fmt: skip


class UpdateHistory:
    """How much the optimizer changed one parameter in the sampled steps."""

    def __init__(self, name: str, dtype: str) -> None:
        self.name, self.dtype = name, dtype
        self._steps: list[int] = []
        self._ratios: list[float | None] = []
        self._values = self._swallowed = 0

    def add(self, step: int, ratio: float, values: int, swallowed: int) -> None:
        """Add one step."""
        self._steps.append(step)
        self._ratios.append(ratio if math.isfinite(ratio) else None)
        self._values += values
        self._swallowed += swallowed

    def thin(self, every: int) -> None:
        """Keep the single steps that are multiples of ``every``."""
        kept = [at for at, step in enumerate(self._steps) if step % every == 0]
        self._steps, self._ratios = [self._steps[at] for at in kept], [self._ratios[at] for at in kept]

    def row(self) -> UpdateRow:
        """As the file has it."""
        return UpdateRow(
            name=self.name, dtype=self.dtype, steps=self._steps, ratios=self._ratios, values=self._values,
            swallowed=self._swallowed,
        )  # fmt: skip


class ScaleHistory:
    """The scale of the loss in each step.

    Attributes:
        begun: Whether a scale is on its way.
    """

    def __init__(self) -> None:
        self.begun = False
        self._last: float | None = None
        self._steps: list[int] = []
        self._scales: list[float] = []
        self._skipped: list[int] = []
        self._grown: list[int] = []

    def add(self, step: int, scale: float) -> None:
        """Add the scale of a step: a scaler lowers it exactly when it skipped the step before."""
        if scale != self._last and len(self._steps) < _MOST_CHANGES:
            self._steps.append(step)
            self._scales.append(scale)
            if self._last is not None:
                (self._skipped if scale < self._last else self._grown).append(step - 1)
        self._last = scale

    def row(self) -> LossScale | None:
        """As the file has it; None where no scaler was heard."""
        if self._last is None:
            return None
        return LossScale(steps=self._steps, scales=self._scales, skipped=self._skipped, grown=self._grown)


class Histories:
    """All that is known of the sampled steps.

    Attributes:
        every: Every so many steps are looked at.
        steps: Those that were looked at and are kept by themselves.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.steps: list[int] = []
        self._tensors: dict[tuple[TensorKind, str], TensorHistory] = {}
        self._updates: dict[str, UpdateHistory] = {}
        self._non_finite: list[NonFinite] = []

    def add(
        self,
        step: int,
        tensors: Iterable[tuple[TensorKind, str, str, Statistics]],
        updates: Iterable[tuple[str, str, Sequence[float]]],
    ) -> None:
        """Add a sampled step.

        Args:
            step: Its number.
            tensors: In the order of execution: kind, name, format and statistics.
            updates: Name, format, and ratio, values and swallowed ones.
        """
        seen: set[str] = set()
        for kind, name, dtype, found in tensors:
            history = self._tensors.setdefault((kind, name), TensorHistory(name, kind, dtype))
            history.add(step, found)
            self._note_non_finite(step, history, found, seen)
        for name, dtype, (ratio, values, swallowed) in updates:
            self._updates.setdefault(name, UpdateHistory(name, dtype)).add(
                step, ratio, int(values), int(swallowed)
            )
        self.steps.append(step)
        if len(self.steps) > MOST_SAMPLES:
            self._thin()

    def _note_non_finite(self, step: int, history: TensorHistory, found: Statistics, seen: set[str]) -> None:
        held: list[Literal["inf", "nan"]] = []
        if found.infinite or math.isinf(found.largest):
            held.append("inf")
        if math.isnan(found.largest):
            held.append("nan")
        for value in held:
            if value not in seen and len(self._non_finite) < _MOST_NON_FINITE:
                clean = self.steps[-1] if self.steps else None
                self._non_finite.append(
                    NonFinite(step=step, value=value, name=history.name, tensor=history.tensor, clean_step=clean)
                )  # fmt: skip
            seen.add(value)

    def _thin(self) -> None:
        self.every *= 2
        self.steps = [step for step in self.steps if step % self.every == 0]
        for tensor in self._tensors.values():
            tensor.thin(self.every)
        for update in self._updates.values():
            update.thin(self.every)

    def rows(self) -> tuple[list[TensorRow], list[UpdateRow], list[NonFinite]]:
        """As the file has them."""
        tensors = [history.row() for history in self._tensors.values()]
        return tensors, [history.row() for history in self._updates.values()], self._non_finite
