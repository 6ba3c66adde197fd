"""What a rank holds by torch itself, beside what profkit divides: ``python two_ranks.py [RANKS]``.

Ranks are processes over gloo on a CPU. Each shards a transformer with odd widths by fully_shard (FSDP2), layer by layer, takes
a step of Adam, and counts its bytes; then the same by DistributedDataParallel with ZeroRedundancyOptimizer.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

WIDTH, HEADS, INNER, LAYERS, WORDS = 60, 4, 130, 3, 501


class Model(nn.Module):
    """Embedding, encoders and a head; a position of one row, which FSDP2 cannot divide."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.place = nn.Parameter(torch.zeros(1, 16, WIDTH))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, batch_first=True) for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        hidden = self.words(tokens) + self.place
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def held(tensors: Iterable[torch.Tensor | None]) -> int:
    """Bytes of the local parts."""
    local = [getattr(each, "_local_tensor", each) for each in tensors if each is not None]
    return sum(each.numel() * each.element_size() for each in local)


def states(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The optimizer's states of a parameter's shape."""
    return [each for kept in optimizer.state.values() for each in kept.values() if each.dim()]


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Forward, backward and update."""
    model(torch.randint(WORDS, (2, 16))).square().mean().backward()
    optimizer.step()


def of_rank(rank: int, ranks: int, store: str, said: Sequence[int], fullest: float) -> None:
    """One rank: its bytes, and on the first one all ranks' beside what is said."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    model = Model()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer)
    parameters = list(model.parameters())
    mine = [held(parameters), held(each.grad for each in parameters), held(states(optimizer))]
    whole = DistributedDataParallel(Model())
    shared = ZeroRedundancyOptimizer(whole.parameters(), torch.optim.Adam)
    step(whole, shared)
    mine.append(held(states(shared.optim)))
    everyone: list[list[int]] = [[] for _ in range(ranks)]
    dist.all_gather_object(everyone, mine)
    if rank == 0:
        both = (*said, round(2 * fullest * sum(p.numel() * 4 for p in whole.parameters())))
        names = ("parameters", "gradients", "state", "state by ZeRO")
        for name, told, counted in zip(names, both, zip(*everyone, strict=True), strict=True):
            print(
                f"{ranks} ranks, {name}: said {told}, fullest {max(counted)} ({told / max(counted) - 1:+.1%})"
            )
    dist.destroy_process_group()


def main(ranks: int) -> None:
    """Divide as profkit/simulation/shard_memory.py does, then ask torch."""
    import tempfile

    sizes = [each.numel() * 4 for each in Model().parameters()]
    divided = sum(-(-size // ranks) for size in sizes)
    least = [0] * ranks
    for size in sorted(sizes, reverse=True):
        heapq.heapreplace(least, least[0] + size)
    with tempfile.TemporaryDirectory() as folder:
        said = (divided, divided, 2 * divided)
        spawn(of_rank, (ranks, f"{folder}/store", said, max(least) / sum(least)), nprocs=ranks)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
