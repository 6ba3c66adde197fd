"""The device that a program computes on."""

from __future__ import annotations

__all__ = ["peak_bytes", "wait_for_device"]


def wait_for_device() -> None:
    """Until all its work is done."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def peak_bytes() -> int | None:
    """The most that torch has held on it; None without one."""
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None
