"""What helps to find errors and costs time: anomaly mode, blocking launches; and collections of garbage, gradient scalers."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind, RangeKind
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.launching import lift_waits, without_ranges

__all__ = [
    "anomaly_checks", "collect_later", "collections_of", "drop_anomaly_checks", "drop_scaler", "finished_in_call",
    "launch_freely", "scaler_kernels",
]  # fmt: skip

_GARBAGE: Final = re.compile(
    r"(?:^|[^\w])gc(?:\.py)?[^\w].{0,200}collect|built-in method (?:gc\.)?collect|^gc$|^gc[ _.]collect"
)
_FEWEST_CHECKS: Final = 8
_FEWEST_KERNELS: Final = 8
_NEARLY_ALL: Final = 0.95
_CALL_NS: Final = 5_000.0
"""What is left of a launch call that does not block."""

Flags = NDArray[np.bool_]


def anomaly_checks(facts: StepFacts) -> Flags:
    """Checks for NaN after every node of the backward pass, as the anomaly mode makes them."""
    chosen = facts.backward & facts.innermost(
        "aten::isnan", "aten::ne", "aten::any", "aten::_local_scalar_dense", "aten::is_nonzero"
    )
    asked = facts.backward & facts.innermost("aten::_local_scalar_dense")
    return chosen if asked.sum() >= _FEWEST_CHECKS else np.zeros(facts.count, bool)


def drop_anomaly_checks(edited: EditedStep) -> None:
    """Without the checks, and without waiting for them."""
    checks = edited.facts.once(anomaly_checks)
    if checks.any():
        edited.drop(checks)
        lift_waits(edited)


def finished_in_call(facts: StepFacts) -> Flags:
    """Kernels whose launch call returned only after they had finished, if these are nearly all."""
    view, rows = facts.view, facts.program.row
    kernels = view.trace.operations.kind[rows] == OperationKind.KERNEL
    done = kernels & (view.launches.return_ns[rows] >= view.trace.operations.end_ns[rows])
    many = kernels.sum() >= _FEWEST_KERNELS and done.sum() >= _NEARLY_ALL * kernels.sum()
    return done if many else np.zeros(facts.count, bool)


def launch_freely(edited: EditedStep) -> None:
    """Launch calls return before their kernels have run."""
    if not edited.facts.once(finished_in_call).any():
        return
    work = edited.duration_ns + edited.lead_ns
    launched = np.bincount(edited.facts.token, work, minlength=len(edited.own_ns)).astype(float)
    edited.own_ns = np.minimum(edited.own_ns, np.maximum(edited.own_ns - launched, _CALL_NS))


def collections_of(facts: StepFacts) -> Flags:
    """Rows of `Trace.ranges`: collections of garbage within the step."""
    ranges, (since, until) = facts.view.trace.ranges, facts.host_span
    named = np.array([bool(_GARBAGE.search(s)) for s in facts.view.trace.strings] or [False])[ranges.name]
    found: Flags = (
        named & (ranges.kind != RangeKind.OPERATOR) & (ranges.start_ns >= since) & (ranges.start_ns < until)
    )
    return found


def collect_later(edited: EditedStep) -> None:
    """No collection within the step."""
    without_ranges(edited.facts.once(collections_of))(edited)


def scaler_kernels(facts: StepFacts) -> Flags:
    """The kernels of a GradScaler."""
    names = facts.view.trace.names(facts.view.trace.operations.name[facts.program.row])
    found: Flags = facts.named("_amp_foreach_non_finite_check", "_amp_update_scale") | np.array(
        ["amp_non_finite" in n.lower() or "amp_update_scale" in n.lower() for n in names], bool
    )
    return found


def drop_scaler(edited: EditedStep) -> None:
    """Without a GradScaler's kernels."""
    edited.drop(edited.facts.once(scaler_kernels))
