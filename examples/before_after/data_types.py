"""Types and shapes by accident: fp64 arithmetic, and a vocabulary that no tile divides.

What it teaches: one NumPy array makes a whole network compute in fp64; a vocabulary of 50257 leaves the matrix
units' rows misaligned.

    python examples/before_after/data_types.py
"""

from functools import partial

import torch
from steps import BF16, adamw, compare, gpt, mlp, with_tf32

wide = partial(mlp, batch=2048, width=2048, layers=6)
worded = partial(gpt, batch=8, layers=1, amp=BF16, optimizer=partial(adamw, fused=True))
PAIRS = {
    "fp64_mlp": (partial(wide, dtype=torch.float64), wide),
    "fp64_mlp_tf32": (partial(wide, dtype=torch.float64), with_tf32(wide)),
    "vocabulary": (partial(worded, vocab=50257), partial(worded, vocab=50304)),
}

if __name__ == "__main__":
    compare(PAIRS)
