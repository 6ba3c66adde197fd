"""DataLoader workers: samples are decoded while the device works.

What it teaches: without workers the step waits for its data; with enough of them it does not, and two workers
halve the time of the decoding at best.

    python examples/before_after/loader.py
"""

from functools import partial

import torch
from steps import DEVICE, compare
from torch import nn

import profkit


class Slow(torch.utils.data.IterableDataset):
    """Samples that take Python about a tenth of a millisecond each."""

    def __iter__(self):
        index = 0
        while True:
            index += 1
            yield torch.full((1024,), float(sum(i & index for i in range(1500))))


def loading(workers):
    torch.manual_seed(0)
    options = {"persistent_workers": True, "prefetch_factor": 8} if workers else {}
    batches = iter(
        torch.utils.data.DataLoader(Slow(), batch_size=128, num_workers=workers, pin_memory=True, **options)
    )
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)]).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        x = next(batches).to(DEVICE, non_blocking=True)
        with profkit.phase("forward"):
            loss = model(x).square().mean()
        with profkit.phase("backward"):
            loss.backward()
        with profkit.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return step


PAIRS = {
    "loader_4_workers": (partial(loading, 0), partial(loading, 4)),
    "loader_8_workers": (partial(loading, 0), partial(loading, 8)),
}

if __name__ == "__main__":
    compare(PAIRS)
