"""A well-tuned step: compiled, bf16, fused attention and optimizer. Advice has nothing left to say.

python examples/before_after/tuned.py
"""

from functools import partial

from steps import BF16, adamw, compare, gpt

tuned = partial(gpt, batch=64, width=1536, amp=BF16, compiled=True, optimizer=partial(adamw, fused=True))
PAIRS = {"tuned_gpt": (tuned, tuned)}

if __name__ == "__main__":
    compare(PAIRS)
