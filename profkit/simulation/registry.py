"""The changes by name, in the order in which they are made, and what each needs of a step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from profkit.simulation import preconditions as needs
from profkit.simulation.copies import load_with, pin_memory
from profkit.simulation.fusion import compile_model
from profkit.simulation.launching import capture, keep_memory, lift_waits
from profkit.simulation.layouts import channels_last, fuse_attention, keep_activations
from profkit.simulation.optimizers import drop_gradients, foreach_optimizer, fuse_optimizer
from profkit.simulation.precision import align_matrices, autocast, to_fp32, use_tf32
from profkit.simulation.predict import Change, Step

__all__ = ["CHANGES", "LOADER_WORKERS", "Registered", "changes_named", "refusal"]

LOADER_WORKERS: Final = "loader-workers"
"""The change that takes a number: the processes that prepare batches."""


class Registered(NamedTuple):
    """A change of the registry."""

    change: Change
    help: str
    """What it does, as an order."""
    unmet: Callable[[Step, Collection[str]], str | None]
    """Why a step cannot have it beside other changes, or None where it can."""


CHANGES: Final[dict[str, Registered]] = {
    "fp32": Registered(to_fp32, "Compute in fp32 instead of fp64.", needs.doubles),
    "no-checkpointing": Registered(
        keep_activations, "Keep activations instead of recomputing them.", needs.recomputation
    ),
    "fused-attention": Registered(
        fuse_attention, "Use scaled_dot_product_attention.", needs.attention_by_hand
    ),
    "channels-last": Registered(
        channels_last, "Keep model and images in channels_last.", needs.planar_images
    ),
    "aligned": Registered(align_matrices, "Pad matrix sizes to multiples of 8.", needs.misaligned_products),
    "tf32": Registered(use_tf32, "Run fp32 matmuls in TF32.", needs.fp32_products),
    "bf16": Registered(autocast, "Run forward and loss in bf16 with autocast.", needs.wide_types),
    "foreach-optimizer": Registered(
        foreach_optimizer, "Use the foreach optimizer.", needs.optimizer_of_single_tensors
    ),
    "fused-optimizer": Registered(fuse_optimizer, "Use the fused optimizer.", needs.unfused_optimizer),
    "set-to-none": Registered(
        drop_gradients, "Drop gradients instead of zeroing them.", needs.zeroed_gradients
    ),
    "no-sync": Registered(lift_waits, "Remove host synchronisation.", needs.waits),
    "compile": Registered(compile_model, "Compile the model.", needs.eager_kernels),
    "pinned": Registered(pin_memory, "Copy batches early, from pinned memory.", needs.pageable_batches),
    "no-allocation": Registered(keep_memory, "Allocate no memory from the driver.", needs.driver_allocations),
    "cuda-graphs": Registered(
        capture, "Capture the whole step in a CUDA graph.", needs.launches_without_waits
    ),
}
"""Earlier ones change what later ones see."""


def refusal(step: Step, name: str, others: Collection[str] = ()) -> str | None:
    """Why a step cannot have a change, or None where it can.

    Args:
        step: The recorded step.
        name: A key of `CHANGES`, or `LOADER_WORKERS`.
        others: Changes that are made with it: without its waits, a step can be a graph.
    """
    unmet = needs.fetching if name == LOADER_WORKERS else CHANGES[name].unmet
    return unmet(step, others)


def changes_named(names: Iterable[str], loader_workers: int | None = None) -> list[Change]:
    """The changes of these names, in the order of the table.

    Args:
        names: Keys of `CHANGES`.
        loader_workers: Processes that prepare batches beside the step; None leaves loading as it is.
    """
    wanted = set(names)
    chosen = [each.change for name, each in CHANGES.items() if name in wanted]
    return [load_with(loader_workers), *chosen] if loader_workers is not None else chosen
