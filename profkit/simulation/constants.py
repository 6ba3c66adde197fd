"""The constants of the time model, each with its source, and how far the host may be off.

Ten besides the host, which `reports/advice/ablation.py` proves on every measured pair: what moved no pair to the right side is gone.
"""

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
    misaligned: float = 0.2
    """The same on Tensor Cores where sizes are no multiple of 4 (vocabulary and vocabulary_32001 of reports/advice:
    0.20 and 0.19)."""
    attention: float = 0.33
    """The same for fused attention in 16 bits, forward and backward (reports/calibration, attn_*)."""
    memory: float = 0.87
    """The share of the bandwidth that a generated kernel reaches (reports/calibration, compiled_pointwise_bf16)."""
    start_ns: float = 930.0
    """What a kernel takes besides its work: the median of kernels without any (design, section 2)."""
    node_ns: float = 700.0
    """From the end of one node of a CUDA graph to the start of the next (measured: 0.85 us for empty ones; kernels
    overlap its beginning: 0.3 to 0.6 in graph_gpt_short and graph_tiny_mlp of reports/advice)."""
    light_launch: float = 0.35
    """What a launch of a compiled graph, or of a cast, takes of the host, as a share of a usual eager one: generated
    wrapper code, or one small operator, against the dispatcher and autograd (a dozen compiled steps and 32 of autocast: 0.2 to 0.5 are as good as each other)."""
    compiled_entry: float = 20.0
    """What entering a compiled graph takes of the host, in usual launches for the root of the gradients and a quarter:
    guards, AOTAutograd's wrappers and the gradients' own nodes (at most 13 without gradients in compile_norms; 30 for one,
    160 for 28, 220 to 350 for a hundred)."""
    normed: float = 0.5
    """What a batch norm takes at least in channels_last, as a share of before (channels_last_large: about 0.7, two ResNets
    of the zoo: 0.4)."""
    idle: float = 0.5
    """The share of the device's idle time after waits that lifting them saves: kernels that follow each other without
    a rest take longer (item_gpu_bound and item_large of reports/advice: 0.48 in both)."""


LIKELY: Final = Constants()

SCENARIOS: Final = (replace(LIKELY, host=1.25), replace(LIKELY, host=0.65))
"""A slow and a fast host: of 15 steps of public models, the host that was timed took 0.51 to 1.3 of what is said from the one
that was recorded, 3 of them less than 0.65. What else may be off is measured, see `profkit.simulation.predict`."""
