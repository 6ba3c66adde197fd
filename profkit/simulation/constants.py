"""The uncertain constants of the time model, each with its source: a likely value and how far it may be off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

__all__ = ["LIKELY", "SCENARIOS", "Constants"]


@dataclass(frozen=True)
class Constants:
    """One assumption about everything that a recording does not tell."""

    host: float = 1.0
    """A factor on the host's time. A plain run's is known to 14 % from a recording of the same hour, and the same steps
    took a host of the same kind 0.73 to 1.1 times as long on another day (data/before.json and data/after.json of
    reports/advice)."""
    matrix: float = 0.70
    """The share of its peak that a large matrix product reaches. H200: 76 % fp32, 77 % TF32 and bf16 for cubes of
    8192, 66 to 72 % for the layers of a GPT (reports/calibration, environment.json and gpt traces)."""
    matrix_start_ns: float = 2_500.0
    """What a matrix product takes besides its work (probe_gemm_sizes: 2 to 3 us for the smallest)."""
    attention: float = 0.33
    """The same for fused attention in 16 bits, forward and backward (reports/calibration, attn_*)."""
    attention_call: float = 6.0
    """What a call of scaled_dot_product_attention takes of the host, and its backward, in usual launches: it weighs its
    backends, fills statistics and seeds (3 to 14 in ten first sides of reports/advice and in tests/data, median 6)."""
    memory: float = 0.80
    """The share of the bandwidth that a generated pointwise kernel reaches (compiled_pointwise_bf16: 0.87)."""
    rowwise: float = 0.70
    """What of ``memory`` is left where a fused kernel also reduces (compiled_norm_chain_bf16: 0.4 to 1.0)."""
    start_ns: float = 1_500.0
    """What a kernel takes besides its work: it fills and drains the GPU."""
    node_ns: float = 700.0
    """From the end of one node of a CUDA graph to the start of the next (measured: 0.85 us for empty ones; kernels
    overlap its beginning: 0.3 to 0.6 in graph_gpt_short and graph_tiny_mlp of reports/advice)."""
    graph_launch: float = 1.0
    """What the launch of a graph takes of the host, in usual launches."""
    compiled_launch: float = 0.5
    """What a launch of a compiled graph takes of the host, as a share of a usual eager one: generated wrapper code against
    the dispatcher and autograd (fitted with the two below on a dozen compiled steps of reports/advice, most of them held
    up by their host)."""
    compiled_entry: float = 10.0
    """What entering a compiled graph takes of the host, in usual launches: its guards (at most 13 in compile_norms)."""
    compiled_gradient: float = 20.0
    """What entering it in training takes besides, in usual launches for the root of the gradients: AOTAutograd's wrappers
    and the gradients' own nodes (30 for one gradient, 160 for 28, 220 to 350 for a hundred)."""
    convolved: float = 0.3
    """The share of what fusing chains with norms saves that comes of it beside convolutions."""
    kept: float = 0.6
    """The share of intermediate results that a fused kernel still writes for the backward pass."""
    normed: float = 0.55
    """What a batch norm takes at least in channels_last, as a share of before (channels_last_large: about 0.7)."""
    idle: float = 0.5
    """The share of the device's idle time after waits that lifting them saves: kernels that follow each other without
    a rest take longer (item_gpu_bound and item_large of reports/advice: 0.48 in both)."""
    arithmetic: float = 1.0
    """A factor on the instructions of a fused kernel; see `profkit.simulation.fusion`."""
    half: float = 0.65
    """What a pointwise kernel takes after autocast: between 0.5 (16 bits in and out) and 1 (fp32 kept)."""
    cast_launch: float = 0.5
    """What a cast takes of the host, in usual launches."""
    update: float = 0.42
    """Traffic of a fused Adam over that of its foreach passes: 28 of 60 to 90 bytes a parameter."""
    lifted_ns: float = 0.0
    """What a wait that is lifted still takes of the host: it goes on launching while the device works, which slows
    both (sync_item without its 24 waits: 1.28 ms before, 1.51 after)."""
    asked: float = 0.7
    """The share of the host's time for asking for a value that a lifted wait leaves: where the device's results had to
    come first, all of it went (item_host_bound of reports/advice: 0.64 to 0.38 ms)."""
    tried: float = 0.8
    """What a convolution by a general algorithm takes once cuDNN has tried all (no measurement; 0.5 to 1 is assumed)."""
    hidden: float = 0.7
    """The share of a collective's transfer that runs beside kernels once it is asked for a layer ahead: both share the
    memory's bandwidth, and layers are not evenly long (no measurement; 0.4 to 0.9 is assumed)."""
    worker: float = 1.05
    """A factor on the time that a loader's workers need for a batch: they share cores and send results (fitted on
    loader_4_workers and loader_8_workers of reports/advice: 2.5 and at most 1.8)."""


LIKELY: Final = Constants()

SCENARIOS: Final = (
    replace(LIKELY, host=1.25),
    replace(LIKELY, host=0.8),
    Constants(
        matrix=0.60, matrix_start_ns=3_500.0, attention=0.25, attention_call=9.0, memory=0.70, rowwise=0.55, start_ns=2_500.0, node_ns=1_300.0, graph_launch=3.0,
        compiled_launch=0.75, compiled_entry=15.0, compiled_gradient=30.0, convolved=0.0, kept=0.8, normed=0.8, idle=0.25, arithmetic=1.5, half=0.8, cast_launch=0.7, update=0.55, lifted_ns=8_000.0,
        asked=1.0, tried=1.0, hidden=0.4, worker=1.9,
    ),
    Constants(
        matrix=0.76, matrix_start_ns=2_000.0, attention=0.40, attention_call=4.0, memory=0.85, rowwise=0.9, start_ns=1_000.0, node_ns=400.0, graph_launch=0.5,
        compiled_launch=0.35, compiled_entry=5.0, compiled_gradient=13.0, convolved=0.8, kept=0.4, normed=0.4, idle=1.0, arithmetic=0.5, half=0.55, cast_launch=0.35, update=0.35, lifted_ns=0.0, asked=0.0,
        tried=0.5, hidden=0.9, worker=0.8,
    ),
)  # fmt: skip
"""What the figure's low and high are the extremes of: one thing at a time, then all of the change's together."""
