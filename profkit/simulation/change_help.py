"""The changes of a program that profkit knows by name: one list for advice, ``whatif``, ``try`` and ``fit``.

It names them and says what each does. What a change does to a recorded step is in the registry beside it, how it is
applied to a running program in `profkit.trial`: neither has a name that is not here.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CHANGE_HELP"]

CHANGE_HELP: Final[dict[str, str]] = {
    "fp32": "Compute in fp32 instead of fp64.",
    "no-checkpointing": "Keep activations instead of recomputing them.",
    "fused-attention": "Use scaled_dot_product_attention.",
    "channels-last": "Keep model and images in channels_last.",
    "cudnn-benchmark": "Let cuDNN time its algorithms and keep the fastest.",
    "aligned": "Pad matrix sizes to multiples of 8.",
    "tf32": "Run fp32 matmuls in TF32.",
    "bf16": "Run forward and loss in bf16 with autocast; load a model that does not train in bf16.",
    "fp16": "Run forward and loss in fp16 with autocast, and scale the loss.",
    "no-scaler": "Use bf16 instead of fp16 with a GradScaler.",
    "foreach-optimizer": "Use the foreach optimizer.",
    "fused-optimizer": "Use the fused optimizer.",
    "set-to-none": "Drop gradients instead of zeroing them.",
    "vectorised-loops": "Replace Python loops over a tensor by one operator.",
    "no-anomaly-mode": "Turn anomaly mode off.",
    "stacked-reads": "Read many values at once.",
    "no-sync": "Remove host synchronisation.",
    "no-graph-breaks": "Remove the breaks of compiled graphs.",
    "no-recompilation": "Compile once, not in every step.",
    "compile": "Compile the model.",
    "reduce-overhead": "Compile the model, and launch its kernels as CUDA graphs.",
    "loader-workers": "Prepare batches in worker processes.",
    "pinned": "Copy batches early, from pinned memory.",
    "packed-copies": "Send small inputs in one copy.",
    "no-allocation": "Allocate no memory from the driver.",
    "no-launch-blocking": "Unset CUDA_LAUNCH_BLOCKING.",
    "garbage-collection": "Collect garbage between steps.",
    "threads": "Use another number of CPU threads.",
    "bf16-collectives": "Send gradients and parameters in bf16.",
    "larger-buckets": "Reduce gradients in larger buckets.",
    "no-unused-search": "Turn find_unused_parameters off.",
    "last-reduction": "Reduce gradients only in the last micro-step.",
    "prefetched-parameters": "Ask for sharded parameters a layer ahead.",
    "overlapped-collectives": "Run collectives on a stream of their own.",
    "overlapped-copies": "Copy between host and device on a stream of its own.",
    "cuda-graphs": "Capture the whole step in a CUDA graph.",
    "on": "Run on another GPU.",
    "batch": "Take a batch so many times as large.",
    "sequence": "Take sequences so many times as long.",
    "recompute": "Recompute activations in the backward pass.",
    "optimizer": "Use another optimizer.",
    "shard": "Shard the model over several ranks.",
}
"""What each does, as an order. Earlier ones are made first, since they change what later ones see."""
