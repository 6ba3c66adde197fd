"""The answer to what-if: the step as recorded, as it would run, and after each change and all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal

import numpy as np

from profkit.hardware import Gpu
from profkit.model.rows import Interval, Ns, Row
from profkit.model.rows import replace as with_fields
from profkit.simulation.exchanged import Exchanged, paces_ns
from profkit.simulation.job_step import job_step_ns
from profkit.simulation.predict import Change, Prediction, Step, find_step
from profkit.simulation.registry import CHANGES, LOADER_WORKERS, ON, changes_named, refusal
from profkit.timeline.view import TraceView

__all__ = [
    "TOO_LITTLE",
    "AfterPrevious",
    "Refused",
    "WhatIf",
    "WhatIfChange",
    "busiest_devices",
    "first_step",
    "what_if",
]

TOO_LITTLE: Final = "it saves less than 1 %"
_UNLIKE: Final = "the replay of the recorded step is more than 10 % off, so nothing has a price"
_WORTH_SAYING: Final = 0.01
_WORKERS: Final = 8

Made = Callable[[Sequence[str]], list[Change]]
"""From names to changes."""


class AfterPrevious(Row, frozen=True, kw_only=True):
    """What a change adds to those listed before it."""

    saving_ns: int
    """Negative where it takes away from what they save."""
    speedup: float
    """The step with those before it over the step with this one as well."""


class WhatIfChange(Row, frozen=True, kw_only=True):
    """A step with a change."""

    name: str
    """The change, or several with `` + `` between them."""
    after_ns: Ns
    """The step without the recorder and with the change."""
    saving_ns: int
    """What that takes off the step."""
    speedup: Interval
    """The step's time over what it would be."""
    limit: str
    """What limits the step then."""
    after_previous: AfterPrevious | None = None
    """What it adds to the changes before it; None for all together."""


class Refused(Row, frozen=True, kw_only=True):
    """A change that the step cannot have, or that is not worth it."""

    name: str
    reason: str
    """Why, as half a sentence."""


class WhatIf(Row, frozen=True, kw_only=True):
    """What a recorded step would take with some changes: `profkit.whatif/1`."""

    schema: Literal["profkit.whatif/1"] = "profkit.whatif/1"
    recorded_ns: Ns
    """The recorded step."""
    before_ns: Ns
    """The same without the recorder."""
    source: Literal["measured", "estimated", "recorded"]
    """Where ``before_ns`` comes from."""
    limit: str
    """What limits it."""
    changes: Sequence[WhatIfChange]
    """Each change alone, and last all together where there are several that were asked for."""
    refused: Sequence[Refused]
    """The others, each with the reason."""


def what_if(
    views: Sequence[TraceView],
    names: Sequence[str],
    *,
    loader_workers: int | None = None,
    gpu: Gpu | None = None,
) -> WhatIf | None:
    """What a recorded step would take with some changes.

    Args:
        views: The analysed traces; of the devices with a step that can be replayed, the one that did most is taken.
        names: Changes by their names in `CHANGES`; with none (and no workers), all that would save 1 %
            (loading then with 8 workers), the largest saving first.
        loader_workers: Processes that prepare batches beside the step.
        gpu: Another GPU for the step to run on.

    Returns:
        None where no step can be replayed.
    """
    step = first_step(views)
    if step is None:
        return None
    asked = [
        *names, *([LOADER_WORKERS] if loader_workers is not None else []), *([ON] if gpu is not None else [])
    ]  # fmt: skip
    made = partial(_changes, workers=loader_workers if loader_workers is not None else _WORKERS, gpu=gpu)
    unlike = None if step.unprofiled.is_understood else _UNLIKE
    reasons = {name: unlike or refusal(step, name, asked) for name in asked or [*CHANGES, LOADER_WORKERS]}
    can = [name for name, reason in reasons.items() if reason is None]
    if asked:
        priced = [(name, step.predict(made([name]))) for name in can]
    else:
        priced = _worth_saying(step, can, made)
        shown = {name for name, _ in priced}
        reasons |= {name: TOO_LITTLE for name in can if name not in shown}
    rows = [_row(name, found) for name, found in priced]
    if asked and len(rows) > 1:
        rows.append(_row(" + ".join(can), step.predict(made(can))))
    unchanged = step.predict([])
    return WhatIf(
        recorded_ns=step.recorded_ns,
        before_ns=round(unchanged.before_ns),
        source=step.unprofiled.source,
        limit=unchanged.limit,
        changes=_after_previous(step, rows, [name for name, _ in priced], made),
        refused=[Refused(name=name, reason=reason) for name, reason in reasons.items() if reason],
    )


def _worth_saying(step: Step, names: Sequence[str], made: Made) -> list[tuple[str, Prediction]]:
    """The changes that save something, the largest saving first."""
    every = [(n, step.predict_where_worth(made([n]), _WORTH_SAYING)) for n in names]
    return sorted(((n, p) for n, p in every if p is not None), key=lambda each: -each[1].saving_ns)


def _after_previous(
    step: Step, rows: Sequence[WhatIfChange], names: Sequence[str], made: Made
) -> list[WhatIfChange]:
    """The rows of single changes, each with what it adds to those before it; then what else there is."""
    found, before = [], step.told_ns
    for at, row in enumerate(rows[: len(names)]):
        # Alone, the first is after nothing.
        after = row.after_ns if not at else step.after_ns(made(names[: at + 1]))
        saving = round(before - after) if at else row.saving_ns
        added = AfterPrevious(saving_ns=saving, speedup=before / max(after, 1.0))
        found.append(with_fields(row, after_previous=added))
        before = after
    return [*found, *rows[len(names) :]]


def _changes(names: Sequence[str], workers: int, gpu: Gpu | None) -> list[Change]:
    return changes_named(names, workers if LOADER_WORKERS in names else None, gpu if ON in names else None)


def first_step(views: Sequence[TraceView]) -> Step | None:
    """The step of the device that sets the pace, of those that can be replayed, told as that of the whole job."""
    exchanged = Exchanged.of(views)
    for view, device in busiest_devices(views, exchanged):
        step = find_step(view, device, exchanged)
        if step is not None:
            return replace(step, job_ns=job_step_ns(views, (view, device, step.unprofiled)))
    return None


def busiest_devices(views: Sequence[TraceView], exchanged: Exchanged) -> list[tuple[TraceView, int]]:
    """Every trace with each of its devices, those first that did most; of ranks, those that wait least for others.

    The rank that waits least is the one that the others wait for: a step is shorter only as far as its own is.
    """
    every = [(v, d) for v in views for d in range(len(v.trace.devices))]
    busy = [ns for view in views for ns in paces_ns(view, of_ranks=exchanged.devices > 1)]
    return [every[at] for at in np.argsort(-np.array(busy, np.int64), kind="stable").tolist()]


def _row(name: str, found: Prediction) -> WhatIfChange:
    return WhatIfChange(
        name=name,
        after_ns=round(found.after_ns),
        saving_ns=round(found.saving_ns),
        speedup=Interval(low=found.low, likely=found.likely, high=found.high),
        limit=found.limit,
    )
