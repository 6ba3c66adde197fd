"""A planted `.item()`: the host waits for the GPU after every layer.

What it teaches: what a synchronisation looks like in a report, and that removing it helps only where the GPU
was the one to be waited for. Compare the two runs:

    python examples/planted_item.py runs/item
    python examples/planted_item.py runs/no_item --without
    profkit analyze runs/item
    profkit analyze runs/no_item
"""

import sys

import torch
from torch import nn

import profkit


class Logged(nn.Module):
    def __init__(self, layers=8, width=256, *, watch):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.watch = watch
        self.seen = []

    @profkit.phase("forward")
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
            if self.watch:
                self.seen.append(x.mean().item())  # the planted wait: the GPU runs dry while the host reads
        return x


def main(folder="runs/item", *options):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Logged(watch="--without" not in options).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with profkit.record(folder) as recorder:
        for _ in range(8):
            loss = model(torch.randn(64, 256, device=device)).square().mean()
            with profkit.phase("backward"):
                loss.backward()
            with profkit.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            recorder.step()
    print(f"recorded in {recorder.folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
