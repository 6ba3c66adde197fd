"""Batches prepared beside the step, and copied without waiting."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from profkit.trial.changes.base import ALREADY, Change, Promise
from profkit.trial.changes.wrapping import replace, with_arguments
from profkit.trial.messages import Facts

__all__ = ["LoaderWorkers", "Pinned"]

_MOST_WORKERS: Final = 8
"""More processes seldom help a single GPU, and each costs memory."""


def _workers() -> int:
    return min(_MOST_WORKERS, len(os.sched_getaffinity(0)))


class LoaderWorkers(Change):
    """Worker processes that stay, for loaders that have none."""

    name = "loader-workers"
    promise = Promise.DRAWS  # random numbers of a dataset are the worker's

    def obstacle(self, facts: Facts) -> str | None:
        """It takes a loader of torch whose data can be shared out."""
        if not facts.loaders:
            return "no DataLoader runs"
        if all(each.workers for each in facts.loaders):
            return ALREADY
        if all(each.iterable for each in facts.loaders if not each.workers):
            return "an IterableDataset must split its data among workers itself"
        return None

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:
        """Set it at construction."""
        from torch.utils.data import DataLoader, IterableDataset

        def workers(loader: Any, arguments: dict[str, Any]) -> dict[str, Any]:
            if arguments.get("num_workers") or isinstance(arguments.get("dataset"), IterableDataset):
                return {}
            self.applied += 1
            return {"num_workers": _workers(), "persistent_workers": True}

        replace(undo, DataLoader, "__init__", lambda original: with_arguments(original, workers))

    def patch(self, facts: Facts) -> list[str]:
        """In the constructor."""
        return [f"DataLoader(..., num_workers={_workers()}, persistent_workers=True)"]


class Pinned(Change):
    """Batches in pinned memory, copied without waiting."""

    name = "pinned"
    promise = Promise.EQUAL

    def obstacle(self, facts: Facts) -> str | None:
        """It takes a GPU and a loader."""
        if not facts.cuda:
            return "no GPU"
        if not facts.loaders:
            return "no DataLoader runs"
        return ALREADY if all(each.pinned for each in facts.loaders) else None

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:
        """Pin at construction; copies from pinned memory to a GPU wait for nothing."""
        import torch
        from torch.utils.data import DataLoader

        def pinned(loader: Any, arguments: dict[str, Any]) -> dict[str, Any]:
            self.applied += not arguments.get("pin_memory")
            return {"pin_memory": True}

        def early(original: Any) -> Any:
            def copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                if "non_blocking" not in kwargs and tensor.device.type == "cpu" and tensor.is_pinned():
                    try:
                        return original(tensor, *args, non_blocking=True, **kwargs)
                    except TypeError:  # given by its place
                        pass
                return original(tensor, *args, **kwargs)

            return copy

        replace(undo, DataLoader, "__init__", lambda original: with_arguments(original, pinned))
        for name in ("to", "cuda"):
            replace(undo, torch.Tensor, name, early)

    def patch(self, facts: Facts) -> list[str]:
        """In the constructor, and at the copies."""
        return [
            "DataLoader(..., pin_memory=True)",
            "batch.to(device, non_blocking=True)  # at each copy of a batch",
        ]
