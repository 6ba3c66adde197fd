"""A recording and some changes in, what the step would take out: what ``profkit.what_if`` does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from profkit.api.inputs import PathLike, expand
from profkit.api.run_folder import run_steps, stated_step_ns
from profkit.errors import AnalysisError, ProfkitError
from profkit.hardware import Gpu, stated_gpu
from profkit.model import Trace
from profkit.readers import read
from profkit.rendering.what_if import render_what_if_text
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation.answer import WhatIf
from profkit.simulation.answer import what_if as answer
from profkit.simulation.registry import CHANGES

__all__ = ["what_if"]


class _Answer(WhatIf, frozen=True, kw_only=True):
    """It reads as the command line prints it, also in a notebook."""

    def __str__(self) -> str:
        return render_what_if_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def what_if(  # noqa: PLR0913 - options by name, as on the command line
    paths: PathLike | Iterable[PathLike],
    changes: str | Sequence[str] = (),
    *,
    loader_workers: int | None = None,
    step: str | None = None,
    device: int | None = None,
    plain_step: str | None = None,
    plain_step_ns: int | None = None,
    on: Gpu | str | None = None,
) -> WhatIf:
    """What the recorded step would take with some changes, each alone and all together.

    Args:
        paths: A run folder, or an nsys export or torch.profiler trace.
        changes: Names such as ``tf32`` and ``cuda-graphs``: the flags of ``profkit whatif``, also as one text with commas.
            With none, all that would save 1 % are priced.
        loader_workers: Processes that prepare batches beside the step.
        step: The name of the ranges that are steps.
        device: Replay only this device.
        plain_step: The step's time without a profiler: ``38.3ms``. A run folder tells it by itself.
        plain_step_ns: The same in ns.
        on: Another GPU for the step to run on, by a name such as ``H200``: kernels keep their efficiency, the host its time.

    Raises:
        AnalysisError: No step with device work can be replayed.
        ProfkitError: A change or a GPU is unknown.
        ReadError: A file cannot be read.
    """
    changes = changes.split(",") if isinstance(changes, str) else changes
    unknown = sorted(set(changes) - set(CHANGES))
    if unknown:
        raise ProfkitError(f"no change is called {unknown[0]!r}. Known: {', '.join(CHANGES)}")
    files = expand(paths)
    traces = [each for each in map(read, files) if isinstance(each, Trace)]
    options = Options(
        step_name=step,
        device=device,
        plain_step_ns=stated_step_ns(plain_step, plain_step_ns),
        run_steps=run_steps(files),
    )
    views, _ = timelines(traces, options)
    found = answer(views, changes, loader_workers=loader_workers, gpu=stated_gpu(on))
    if found is None:
        raise AnalysisError(
            str(files[0]),
            "it has no step with device work to replay",
            "Record a few steps with kernels, and mark them",
        )
    return _Answer(**msgspec.structs.asdict(found))
