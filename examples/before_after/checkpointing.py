"""Activation checkpointing: less memory, one more forward pass.

What it teaches: without need of the memory, it is a third of the step for nothing.

    python examples/before_after/checkpointing.py
"""

from functools import partial

from steps import BF16, compare, gpt

PAIRS = {"checkpoint_removed": (partial(gpt, amp=BF16, checkpointed=True), partial(gpt, amp=BF16))}

if __name__ == "__main__":
    compare(PAIRS)
