"""TF32: products of fp32 matrices on Tensor Cores.

What it teaches: it is off by default, one line turns it on, and only the matrix products get faster, so the rest
of the step decides what is left of the gain. Inputs keep fp32's range and lose 13 bits of mantissa.

    python examples/before_after/tf32.py
"""

from functools import partial

from steps import compare, gpt, mlp, with_tf32

wide = partial(mlp, batch=4096, width=4096, layers=4)
small = partial(mlp, batch=64, width=128, layers=12)
PAIRS = {
    "tf32_gpt": (gpt, with_tf32(gpt)),
    "tf32_wide_mlp": (wide, with_tf32(wide)),
    "tf32_small_mlp": (small, with_tf32(small)),
}

if __name__ == "__main__":
    compare(PAIRS)
