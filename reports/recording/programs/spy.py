"""``python spy.py FILE script.py ...``: run a script, and write down each loss that backward gets, to the bit."""

import os
import runpy
import sys
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

target = Path(sys.argv[1] + os.environ.get("RANK", ""))
backward, losses, steps = torch.autograd.backward, [], [0]


def spying(tensors, *args, **kwargs):
    first = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
    losses.append(first.detach().sum().item().hex())
    return backward(tensors, *args, **kwargs)


def stepped(*_):
    steps[0] += 1


torch.autograd.backward = spying
register_optimizer_step_post_hook(stepped)
sys.argv = sys.argv[2:]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    target.write_text("\n".join([str(steps[0]), *losses]))
