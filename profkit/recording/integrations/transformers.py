"""A Hugging Face `TrainerCallback` that records some training steps with their phases."""

from __future__ import annotations

import atexit
import os
from typing import Any

from transformers import TrainerCallback

from profkit.recording.instrument import Instrument, instrument
from profkit.recording.recorder import Recorder, record

__all__ = ["ProfkitCallback"]


class ProfkitCallback(TrainerCallback):
    """``Trainer(..., callbacks=[ProfkitCallback("runs/today", steps=3)])``.

    Args:
        folder: Where the recording goes.
        depth: How deep the model's modules become phases.
        **options: Those of `profkit.record`.
    """

    def __init__(self, folder: str | os.PathLike[str], *, depth: int = 0, **options: Any) -> None:
        self._record = record(folder, **options)
        self._depth = depth
        self._hooks: Instrument | None = None
        self.recorder: Recorder | None = None
        """The recording, once training has begun."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin recording."""
        loader, optimizer = kwargs.get("train_dataloader"), kwargs.get("optimizer")
        self._hooks = instrument(
            kwargs.get("model"),
            getattr(optimizer, "optimizer", optimizer),  # Accelerate's wrapper has no hooks
            getattr(loader, "base_dataloader", loader),
            depth=self._depth,
        )
        self.recorder = self._record.__enter__()
        atexit.register(self._finish)  # the Trainer tells no callback when training ends by an error

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step is over."""
        if self.recorder is not None:
            self.recorder.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write what was recorded."""
        self._finish()

    def _finish(self) -> None:
        atexit.unregister(self._finish)
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None
            self._record.__exit__(None, None, None)
