"""A training on the GPU that waits for Python before each step, unedited."""

import torch

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).to(
    device
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def tokens_of(text):
    total = 0
    for letter in text:
        total += ord(letter) % 7
    return total


def train(steps):
    text = "the quick brown fox " * 20_000
    for _ in range(steps):
        scale = tokens_of(text) / len(text)
        loss = model(torch.ones(64, 512, device=device) * scale).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


train(20)
