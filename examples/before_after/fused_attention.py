"""Fused attention: the scores never leave the chip.

What it teaches: written by hand, attention writes and reads a (length x length) matrix several times for every
head; `scaled_dot_product_attention` does not.

    python examples/before_after/fused_attention.py
"""

from functools import partial

from steps import BF16, compare, gpt

amp = partial(gpt, amp=BF16)
long = partial(amp, batch=4, length=2048)
PAIRS = {
    "attention_512": (partial(amp, naive=True), amp),
    "attention_2048": (partial(long, naive=True), long),
}

if __name__ == "__main__":
    compare(PAIRS)
