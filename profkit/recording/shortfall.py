"""Why a recording holds less than its schedule says, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profkit.recording.stages import Schedule, Stage

__all__ = ["shortfall"]


def shortfall(
    schedule: Schedule,
    step: int,
    cycles: list[dict[str, Any]],
    asked_by: str | None,
    *,
    by_hooks: bool,
    heard: Mapping[str, int] | None,
) -> str | None:
    """What is missing from a recording that has ended, and what helps; None where it is whole.

    Args:
        schedule: Which steps were to be recorded.
        step: How many steps ended.
        cycles: The traces that were written, as ``run.json`` has them.
        asked_by: What would have asked for a cycle.
        by_hooks: Whether hooks tell of the steps, so that the person has called nothing.
        heard: How often the hooks of an unedited script heard what.
    """
    if schedule.steps is None:
        return None
    if asked_by is not None and schedule.begin is None:
        return f"no trace was written: nothing asked for one by {asked_by}"
    called = _steps(schedule, step, by_hooks)
    if schedule.stage(step) in (Stage.WAIT, Stage.WARMUP) and step < schedule.cycle and not cycles:
        hint = "Lower wait or warmup" if step else _why_no_step(heard)
        return f"no trace was written: {called}. {hint}"
    if cycles and not cycles[-1]["complete"]:
        return f"the last trace holds {cycles[-1]['steps']} of {schedule.steps} steps: {called}"
    return None


def _steps(schedule: Schedule, step: int, by_hooks: bool) -> str:
    if not by_hooks:
        return f"step() was called {step} times, the schedule needs {schedule.wait}+{schedule.warmup}+{schedule.steps}"
    parts = f"wait {schedule.wait}, warmup {schedule.warmup}, steps {schedule.steps}"
    return f"the program made {step} training steps, and the schedule needs {schedule.cycle} ({parts})"


def _why_no_step(heard: Mapping[str, int] | None) -> str:
    if heard is None:
        return "Call recorder.step() at the end of every training step"
    if heard.get("backward"):
        return "No optimizer of torch made a step: --step-by backward, or --whole"
    return (
        "No optimizer ran: --whole records everything, --step-by module or loader finds other steps. A Python program"
        " that it starts is recorded if it keeps PYTHONPATH and has profkit"
    )
