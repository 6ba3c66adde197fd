"""The capture range of Nsight Systems as a part of a recording, in place of torch.profiler's CUDA activity."""

from __future__ import annotations

from typing import Any

from profkit.recording import backends
from profkit.recording.stages import Stage

__all__ = ["CaptureRange"]


class CaptureRange:
    """Opens nsys' capture range for the recorded steps, and marks each as ``ProfilerStep#N``.

    The range counts where nsys was started with ``--capture-range=cudaProfilerApi``; else it is ignored.

    Args:
        opens: Open the range; False marks the steps only, and never touches CUDA.
        shapes: Let ``emit_nvtx`` write every operator with its shapes; slow, and the file grows.
    """

    name = "the capture range"

    def __init__(self, *, opens: bool, shapes: bool) -> None:
        self._opens = opens
        self._shapes = shapes
        self._emitter: Any = None
        self._range: backends.Opened | None = None
        self._device = False

    def start(self, stage: Stage) -> None:
        """Open the range if the first step is recorded."""
        if stage is Stage.ACTIVE:
            self._begin(0)

    def step(self, step: int, stage: Stage, following: Stage) -> None:
        """Close the step's range; open or close the capture range where recording begins or ends."""
        if stage is Stage.ACTIVE:
            self._close_step()
        if stage is Stage.ACTIVE and following is not Stage.ACTIVE:
            self._end()
        elif following is Stage.ACTIVE:
            if stage is not Stage.ACTIVE:
                self._begin(step + 1)
            else:
                self._open_step(step + 1)

    def leave_step(self) -> None:
        """Close the step's range."""
        self._close_step()

    def stop(self, stage: Stage) -> None:
        """Close what is open."""
        if stage is Stage.ACTIVE:
            self._close_step()
            self._end()

    def _begin(self, step: int) -> None:
        import torch

        if self._opens and torch.cuda.is_available():
            torch.cuda.synchronize()  # else work of the steps before falls into the range
            torch.cuda.profiler.start()
            self._device = True
        if self._shapes:
            self._emitter = torch.autograd.profiler.emit_nvtx(record_shapes=True)
            self._emitter.__enter__()
        self._open_step(step)

    def _end(self) -> None:
        import torch

        if self._emitter is not None:
            self._emitter.__exit__(None, None, None)
            self._emitter = None
        if self._device:
            torch.cuda.synchronize()  # else the last step's work is cut off
            torch.cuda.profiler.stop()
            self._device = False

    def _open_step(self, step: int) -> None:
        self._range = backends.open_range(f"ProfilerStep#{step}")

    def _close_step(self) -> None:
        if self._range is not None:
            backends.close_marks(self._range)
            self._range = None
