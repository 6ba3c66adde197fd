"""The changes by name, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.simulation.copies import load_with, pin_memory
from profkit.simulation.fusion import compile_model
from profkit.simulation.launching import capture, keep_memory, lift_waits
from profkit.simulation.layouts import channels_last, fuse_attention, keep_activations
from profkit.simulation.optimizers import drop_gradients, foreach_optimizer, fuse_optimizer
from profkit.simulation.precision import align_matrices, autocast, to_fp32, use_tf32
from profkit.simulation.predict import Change

__all__ = ["CHANGES", "changes_named"]

CHANGES: Final[dict[str, tuple[Change, str]]] = {
    "fp32": (to_fp32, "fp32 instead of fp64"),
    "no-checkpointing": (keep_activations, "activations kept instead of recomputed"),
    "fused-attention": (fuse_attention, "scaled_dot_product_attention"),
    "channels-last": (channels_last, "model and images in channels_last"),
    "aligned": (align_matrices, "matrix sizes padded for Tensor Cores"),
    "tf32": (use_tf32, "fp32 matmuls in TF32"),
    "bf16": (autocast, "forward and loss in bf16 with autocast"),
    "foreach-optimizer": (foreach_optimizer, "the foreach optimizer"),
    "fused-optimizer": (fuse_optimizer, "the fused optimizer"),
    "set-to-none": (drop_gradients, "gradients dropped instead of zeroed"),
    "no-sync": (lift_waits, "no host synchronisation"),
    "compile": (compile_model, "the model compiled"),
    "pinned": (pin_memory, "batches copied early, from pinned memory"),
    "no-allocation": (keep_memory, "no memory allocated from the driver"),
    "cuda-graphs": (capture, "the whole step captured in a CUDA graph"),
}
"""Each change with what it means; earlier ones change what later ones see."""


def changes_named(names: Iterable[str], loader_workers: int | None = None) -> list[Change]:
    """The changes of these names, in the order of the table.

    Args:
        names: Keys of `CHANGES`.
        loader_workers: Processes that prepare batches beside the step; None leaves loading as it is.
    """
    wanted = set(names)
    chosen = [change for name, (change, _) in CHANGES.items() if name in wanted]
    return [load_with(loader_workers), *chosen] if loader_workers is not None else chosen
