"""The answer to what-if: the step as recorded, as it would run, and after each change and all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from profkit.model.rows import Interval, Ns, Row
from profkit.simulation.predict import Change, Prediction, Step, find_step
from profkit.simulation.registry import CHANGES, changes_named
from profkit.timeline.view import TraceView

__all__ = ["first_step", "what_if"]

_WORTH_SAYING: Final = 0.01
_LOADER: Final = "loader-workers"
_WORKERS: Final = 8


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


class WhatIf(Row, frozen=True, kw_only=True):
    """What a recorded step would take with some changes."""

    recorded_ns: Ns
    """The recorded step."""
    before_ns: Ns
    """The same without the recorder."""
    source: Literal["measured", "estimated", "recorded"]
    """Where ``before_ns`` comes from."""
    limit: str
    """What limits it."""
    changes: Sequence[WhatIfChange]
    """Each change alone, and last all together where there are several."""


def what_if(
    views: Sequence[TraceView],
    names: Sequence[str],
    *,
    loader_workers: int | None = None,
) -> WhatIf | None:
    """What a recorded step would take with some changes.

    Args:
        views: The analysed traces; the first device with a step that can be replayed is taken.
        names: Changes by their names in `CHANGES`; with none (and no workers), all that would save 1 %
            (loading then with 8 workers).
        loader_workers: Processes that prepare batches beside the step.

    Returns:
        None where no step can be replayed.
    """
    step = first_step(views)
    if step is None:
        return None
    asked = [*names, *([_LOADER] if loader_workers is not None else [])]
    if asked:
        rows = [_row(name, step.predict(_changes([name], loader_workers))) for name in asked]
    else:
        every = [*CHANGES, _LOADER]
        priced = [(n, step.predict_where_worth(_changes([n], _WORKERS), _WORTH_SAYING)) for n in every]
        rows = sorted((_row(n, p) for n, p in priced if p is not None), key=lambda row: -row.saving_ns)
    if len(asked) > 1:
        rows.append(_row(" + ".join(asked), step.predict(_changes(asked, loader_workers))))
    unchanged = step.predict([])
    return WhatIf(
        recorded_ns=step.facts.program.step_ns,
        before_ns=round(unchanged.before_ns),
        source=step.unprofiled.source,
        limit=unchanged.limit,
        changes=rows,
    )


def _changes(names: Sequence[str], loader_workers: int | None) -> list[Change]:
    return changes_named(names, loader_workers if _LOADER in names else None)


def first_step(views: Sequence[TraceView]) -> Step | None:
    """The first step that can be replayed, of all devices in order."""
    for view in views:
        for device in range(len(view.trace.devices)):
            step = find_step(view, device)
            if step is not None:
                return step
    return None


def _row(name: str, found: Prediction) -> WhatIfChange:
    return WhatIfChange(
        name=name,
        after_ns=round(found.after_ns),
        saving_ns=round(found.saving_ns),
        speedup=Interval(low=found.low, likely=found.likely, high=found.high),
        limit=found.limit,
    )
