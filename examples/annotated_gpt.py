"""An annotated GPT training step: one mark, three recordings.

What it teaches: where the time of attention goes (scores, softmax, value product), and that the same phases
come out of nsys, torch.profiler and the memory history.

    python examples/annotated_gpt.py                                   # torch.profiler, and memory on a GPU
    profkit record nsys --capture -- python examples/annotated_gpt.py  # the same steps under Nsight Systems
    profkit analyze runs/annotated_gpt
"""

import sys

import torch
from torch import nn

import profkit

VOCABULARY, WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 512, 128, 4, 2, 128, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    @profkit.phase("attention")
    def forward(self, x):
        batch, length, _ = x.shape
        query, key, value = self.project(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        with profkit.phase("scores"):
            scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        with profkit.phase("softmax"):
            weights = scores.softmax(-1)
        with profkit.phase("value"):
            mixed = weights @ value
        return self.output(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.first, self.second = Attention(), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        with profkit.phase("mlp"):
            return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    @profkit.phase("forward")
    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.tokens(tokens) + self.places(places)))


@profkit.phase("data")
def next_batch(generator, device):
    return torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=generator).to(device)


def train_step(model, optimizer, batch):
    logits = model(batch[:, :-1])
    with profkit.phase("loss"):
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    with profkit.phase("backward"):
        loss.backward()
    with profkit.phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


def build(device):
    torch.manual_seed(0)
    model = GPT().to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-4)


def main(folder="runs/annotated_gpt", steps=8):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, optimizer = build(device)
    generator = torch.Generator().manual_seed(1)
    with profkit.record(folder, memory=device == "cuda") as recorder:
        for _ in range(steps):
            loss = train_step(model, optimizer, next_batch(generator, device))
            recorder.step()
    print(f"loss {loss.item():.3f}; recorded {[path.name for path in recorder.files]} in {recorder.folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
