"""A slow loader: the step waits for its data.

What it teaches: `profkit.instrument` marks forward, backward, the optimizer and the loader of a training loop
that is left as it is, and the report names the loader as what the device waits for.

    python examples/slow_loader.py
    profkit analyze runs/slow_loader
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import profkit


class Slow(Dataset):
    """Ten milliseconds a batch, as decoding images in the training process may take."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.full((32, 64), float(index))


def main(folder="runs/slow_loader"):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Slow(), batch_size=None)
    with profkit.instrument(model, optimizer, loader), profkit.record(folder) as recorder:
        for batch in loader:
            model(batch.to(device)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
    print(f"recorded in {recorder.folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
