"""CUDA graphs: a captured step is launched as a whole.

What it teaches: the gain is the host's launches, so it is large where kernels are small and nothing where the
device is the limit. Shapes must stay the same, and nothing inside may wait for the device.

    python examples/before_after/cuda_graphs.py
"""

from functools import partial

from steps import BF16, adamw, compare, gpt, graphed, mlp, needs_gpus

capturable = partial(adamw, fused=True, capturable=True)
tiny = partial(mlp, optimizer=capturable)
short = partial(gpt, batch=2, length=128, amp=BF16, optimizer=capturable)
long = partial(gpt, amp=BF16, optimizer=capturable)
PAIRS = {
    "graph_tiny_mlp": (tiny, graphed(tiny)),
    "graph_gpt_short": (short, graphed(short)),
    "graph_gpt_long": (long, graphed(long)),
}

if __name__ == "__main__":
    needs_gpus()
    compare(PAIRS)
