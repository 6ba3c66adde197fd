"""Chains of a step's kernels that a compiler makes one of, and the bytes that then neither leave nor enter the GPU's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from profkit.model.report_kernels import FusionRow
from profkit.model.summing import Summed
from profkit.simulation.constants import LIKELY
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.fusion import fusible_groups, remaining_bytes
from profkit.simulation.kernel_facts import StepFacts

__all__ = ["fusion_rows"]

_MOST_ROWS: Final = 100

_CHAINS: Final = Summed[FusionRow](("kernels", "phase"), ("count", "total_ns", "dram_bytes", "saved_bytes"))


def fusion_rows(facts: StepFacts) -> Sequence[FusionRow]:
    """The chains of a step whose bytes are known, those first that save most; equal ones are one row."""
    edited = EditedStep(facts, facts.program, LIKELY)
    phases, row = facts.view.phases, facts.program.row
    made = []
    for group in fusible_groups(edited, facts.compiled | facts.optimizer | facts.zeroing):
        moved, kernels = edited.bytes[group], [facts.kernels[at] for at in group.tolist()]
        if len(group) < 2 or np.isnan(moved).any() or np.isnan(facts.elements[group]).any():
            continue
        path = int(phases.path_of(phases.of_operation[row[group[:1]]])[0])
        saved = float(moved.sum()) - remaining_bytes(edited, group)
        made.append(
            FusionRow(
                kernels=tuple(kernel.short_name if kernel else "copy" for kernel in kernels),
                phase=phases.paths[path] if path >= 0 else None,
                count=1,
                total_ns=int(facts.program.duration_ns[group].sum()),
                dram_bytes=round(float(moved.sum())),
                saved_bytes=max(round(saved), 0),
            )
        )
    found = [each for each in _CHAINS.rows(made) if each.saved_bytes]
    return sorted(found, key=lambda each: (-each.saved_bytes, each.kernels))[:_MOST_ROWS]
