"""A Hugging Face `TrainerCallback` that records some training steps with their phases."""

from __future__ import annotations

import functools
import os
from typing import Any

from transformers import Trainer, TrainerCallback

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
        _end_with_training()

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

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step is over."""
        if self.recorder is not None:
            self.recorder.step_heard()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write what was recorded."""
        self.finish()

    def finish(self, error: BaseException | None = None) -> None:
        """End the recording, if one runs; ``error`` is what training ended by."""
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None
            self._record.__exit__(type(error) if error else None, error, None)


def _end_with_training() -> None:
    """Let `Trainer.train` end recordings when it raises: it tells no callback of that."""
    original = Trainer.train
    if hasattr(original, "_ends_recordings"):
        return

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, ProfkitCallback):
                    callback.finish(error)
            raise

    vars(train)["_ends_recordings"] = True
    Trainer.train = train
