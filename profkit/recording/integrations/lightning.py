"""A Lightning `Callback` that records some training steps with their phases."""

from __future__ import annotations

import os
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:  # the same under its older name
    from pytorch_lightning import Callback

from profkit.recording.instrument import Instrument, instrument
from profkit.recording.recorder import Recorder, record

__all__ = ["ProfkitCallback"]


class ProfkitCallback(Callback):
    """``Trainer(..., callbacks=[ProfkitCallback("runs/today", steps=3)])``.

    Args:
        folder: Where the recording goes.
        depth: How deep the module's own modules become phases.
        **options: Those of `profkit.record`.
    """

    def __init__(self, folder: str | os.PathLike[str], *, depth: int = 0, **options: Any) -> None:
        super().__init__()
        self._record = record(folder, **options)
        self._depth = depth
        self._hooks: list[Instrument] = []
        self.recorder: Recorder | None = None
        """The recording, once training has begun."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin recording."""
        loader = trainer.train_dataloader
        self._hooks = [
            instrument(
                pl_module, None, loader if hasattr(loader, "_get_iterator") else None, depth=self._depth
            )
        ]
        self._hooks += [
            instrument(optimizer=getattr(optimizer, "optimizer", optimizer))
            for optimizer in trainer.optimizers
        ]
        self.recorder = self._record.__enter__()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A batch is over."""
        if self.recorder is not None:
            self.recorder.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Write what was recorded."""
        self._finish(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write what was recorded until the program's own error."""
        self._finish(exception)

    def _finish(self, error: BaseException | None) -> None:
        for hooks in self._hooks:
            hooks.remove()
        self._hooks = []
        if self.recorder is not None:
            self._record.__exit__(type(error) if error else None, error, None)
            self.recorder = None
