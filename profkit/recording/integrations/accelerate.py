"""Record an Accelerate training loop: a step ends where gradients are synchronised."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer

from profkit.recording.instrument import instrument
from profkit.recording.recorder import Recorder, record

__all__ = ["recorded"]


@contextmanager
def recorded(
    accelerator: Accelerator,
    model: Any,
    optimizer: Any,
    loader: Any,
    folder: str | os.PathLike[str],
    **options: Any,
) -> Iterator[Recorder]:
    """Record a training loop over what ``accelerator.prepare`` gave.

    Write ``with recorded(accelerator, model, optimizer, loader, "runs/today"):`` around it. The optimizer's steps end the training steps, so gradient accumulation counts as one; call nothing else.

    Args:
        accelerator: The program's own.
        model: The prepared model.
        optimizer: The prepared optimizer.
        loader: The prepared loader.
        folder: Where the recording goes.
        **options: Those of `profkit.record`.
    """
    inner = optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer
    fetched = getattr(loader, "base_dataloader", loader)
    with (
        instrument(accelerator.unwrap_model(model), inner, fetched, depth=0),
        record(folder, **options) as recorder,
    ):
        hook = inner.register_step_post_hook(lambda *_: recorder.step_heard())
        try:
            yield recorder
        finally:
            hook.remove()
