"""Autocast to bf16: half the bytes and, on Tensor Cores, at least twice the rate.

What it teaches: around forward and loss only; a step that waits for its host gets slower by the casts.

    python examples/before_after/autocast.py
"""

from functools import partial

from steps import BF16, compare, convnet, gpt, mlp, with_tf32

wide = partial(mlp, batch=4096, width=4096, layers=4)
images = partial(convnet, channels_last=True)
small = partial(mlp, batch=64, width=128, layers=12)
PAIRS = {
    "bf16_gpt_fp32": (gpt, partial(gpt, amp=BF16)),
    "bf16_gpt_tf32": (with_tf32(gpt), with_tf32(partial(gpt, amp=BF16))),
    "bf16_wide_mlp_tf32": (with_tf32(wide), with_tf32(partial(wide, amp=BF16))),
    "bf16_convnet": (images, partial(images, amp=BF16)),
    "bf16_small_mlp": (small, partial(small, amp=BF16)),
}

if __name__ == "__main__":
    compare(PAIRS)
