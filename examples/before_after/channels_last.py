"""channels_last: the layout in which convolutions use Tensor Cores best.

What it teaches: in 16 bits, cuDNN transposes every tensor there and back unless the model and its input already
have the layout.

    python examples/before_after/channels_last.py
"""

from functools import partial

import torch
from steps import BF16, compare, convnet

amp = partial(convnet, amp=BF16)


def benchmarked(build):
    """The same step, with cuDNN trying its algorithms once."""

    def built():
        torch.backends.cudnn.benchmark = True
        return build()

    return built


PAIRS = {
    "channels_last_bf16": (amp, partial(amp, channels_last=True)),
    "channels_last_fp32": (convnet, partial(convnet, channels_last=True)),
    "cudnn_benchmark": (
        partial(amp, channels_last=True),
        benchmarked(partial(amp, channels_last=True)),
    ),
}

if __name__ == "__main__":
    compare(PAIRS)
