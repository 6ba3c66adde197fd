"""Fused optimizers: all parameters in a few kernels, each byte once.

What it teaches: one kernel for each parameter and operator keeps the host busy; the foreach default has few
kernels and still reads and writes the state several times; ``fused=True`` does it in one pass.

    python examples/before_after/fused_optimizer.py
"""

from functools import partial

from steps import BF16, adamw, compare, gpt, mlp

single, foreach, fused = (
    partial(adamw, **{k: v}) for k, v in (("foreach", False), ("foreach", True), ("fused", True))
)
amp = partial(gpt, amp=BF16)
heavy = partial(mlp, batch=256, width=4096, layers=8, amp=BF16)
PAIRS = {
    "fused_single_mlp": (partial(mlp, optimizer=single), partial(mlp, optimizer=fused)),
    "foreach_single_mlp": (partial(mlp, optimizer=single), partial(mlp, optimizer=foreach)),
    "fused_foreach_mlp": (partial(mlp, optimizer=foreach), partial(mlp, optimizer=fused)),
    "fused_foreach_heavy_mlp": (partial(heavy, optimizer=foreach), partial(heavy, optimizer=fused)),
    "fused_single_gpt": (partial(amp, optimizer=single), partial(amp, optimizer=fused)),
    "fused_foreach_gpt": (partial(amp, optimizer=foreach), partial(amp, optimizer=fused)),
    "zero_grad_gpt": (partial(amp, set_to_none=False), amp),
}

if __name__ == "__main__":
    compare(PAIRS)
