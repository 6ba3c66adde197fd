"""A Lightning `Callback` that records some training steps with their phases."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:  # the same under its older name
    from pytorch_lightning import Callback

from profkit.recording.event_marks import mark_recorded_steps
from profkit.recording.program_events import listen, unlisten
from profkit.recording.recorder import Recorder, record
from profkit.recording.step_finder import StepFinder

__all__ = ["ProfkitCallback"]


class ProfkitCallback(Callback):
    """``Trainer(..., callbacks=[ProfkitCallback("runs/today", steps=3)])``.

    A step is a step of the optimizer: the batches whose gradients are accumulated are one.

    Args:
        folder: Where the recording goes.
        depth: How deep modules within the model become phases.
        **options: Those of `profkit.record`.
    """

    def __init__(self, folder: str | os.PathLike[str], *, depth: int = 0, **options: Any) -> None:
        super().__init__()
        self._record = record(folder, **options)
        self._depth = depth
        self._stack = ExitStack()
        self.recorder: Recorder | None = None
        """The recording, once training has begun."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin recording."""
        self.recorder = self._record.__enter__()
        if self.recorder.folder is not None:
            self._stack.callback(mark_recorded_steps(self.recorder, self._depth))
            finder = StepFinder(self.recorder.step_heard, "optimizer")
            listen(finder)
            self._stack.callback(unlisten, finder)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Write what was recorded."""
        self._finish(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write what was recorded until the program's own error."""
        self._finish(exception)

    def _finish(self, error: BaseException | None) -> None:
        self._stack.close()
        if self.recorder is not None:
            self._record.__exit__(type(error) if error else None, error, None)
            self.recorder = None
