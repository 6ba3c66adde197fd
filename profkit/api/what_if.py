"""A recording and some changes in, what the step would take out: what ``profkit.what_if`` does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from profkit.api.report import PathLike, expand, run_step_ns
from profkit.errors import AnalysisError, ProfkitError
from profkit.model import Trace
from profkit.readers import read
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation.answer import WhatIf
from profkit.simulation.answer import what_if as answer
from profkit.simulation.registry import CHANGES

__all__ = ["what_if"]


def what_if(
    paths: PathLike | Iterable[PathLike],
    changes: Sequence[str] = (),
    *,
    loader_workers: int | None = None,
    step: str | None = None,
    device: int | None = None,
    plain_step_ns: int | None = None,
) -> WhatIf:
    """What the recorded step would take with some changes, each alone and all together.

    Args:
        paths: A run folder, or an nsys export or torch.profiler trace.
        changes: Names such as ``tf32`` and ``cuda-graphs``: the flags of ``profkit whatif``. With none, all that would
            save 1 % are priced.
        loader_workers: Processes that prepare batches beside the step.
        step: The name of the ranges that are steps.
        device: Replay only this device.
        plain_step_ns: The step's time without a profiler, in ns; a run folder tells it by itself.

    Raises:
        AnalysisError: No step with device work can be replayed.
        ProfkitError: A change is unknown.
        ReadError: A file cannot be read.
    """
    unknown = sorted(set(changes) - set(CHANGES))
    if unknown:
        raise ProfkitError(f"no change is called {unknown[0]!r}. Known: {', '.join(CHANGES)}")
    files = expand(paths)
    known = plain_step_ns if plain_step_ns is not None else run_step_ns(files)
    traces = [each for each in map(read, files) if isinstance(each, Trace)]
    views, _ = timelines(traces, Options(step_name=step, device=device))
    found = answer(views, changes, loader_workers=loader_workers, plain_step_ns=known)
    if found is None:
        raise AnalysisError(
            str(files[0]),
            "it has no step with device work to replay",
            "Record a few steps with kernels, and mark them",
        )
    return found
