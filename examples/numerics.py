"""A small training in six number formats, and what profkit says of each.

    python examples/numerics.py [STEPS]

What it teaches: which types autocast gives to each part of a model; that fp16 without a scaler loses small
gradients, and with one gets them back; that weights in pure bf16 swallow small updates, which a master copy in fp32
keeps; and how much each differs from fp32. It runs on a CPU in seconds.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import profkit

WIDTH, CLASSES, BATCH = 64, 10, 32
LOSS_SCALE = 1e-5
"""The loss is divided by the tokens of a large batch in real programs; here a factor stands for that."""
RATE = 5e-5
"""So small that an update is less than half of the distance between two numbers of bf16 for most weights."""


class ToyModel(nn.Module):
    """Two linear layers around a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(WIDTH, WIDTH, bias=False)
        self.ln = nn.LayerNorm(WIDTH)
        self.fc2 = nn.Linear(WIDTH, CLASSES, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.ln(torch.relu(self.fc1(x))))


class Training:
    """The model in one number format.

    Args:
        autocast: The type of the forward pass, where autocast chooses it.
        scaler: Whether the loss is scaled so that fp16 holds its gradients.
        weights: The type of the weights.
        master: Whether the optimizer keeps a copy of the weights in fp32.
    """

    def __init__(
        self,
        *,
        autocast: torch.dtype | None = None,
        scaler: bool = False,
        weights: torch.dtype = torch.float32,
        master: bool = False,
    ) -> None:
        torch.manual_seed(0)
        self.model, self.autocast, self.weights = ToyModel().to(weights), autocast, weights
        self.x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1))
        self.y = torch.randint(CLASSES, (BATCH,), generator=torch.Generator().manual_seed(2))
        self.copies = [p.detach().float() for p in self.model.parameters()] if master else []
        self.optimizer = torch.optim.AdamW(self.copies or self.model.parameters(), lr=RATE, weight_decay=0)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, enabled=scaler)
        self.lost_gradients = self.swallowed = 0.0

    def step(self) -> float:
        """One update; returns the loss."""
        region = torch.autocast("cpu", self.autocast) if self.autocast else contextlib.nullcontext()
        with region:
            logits = self.model(self.x.to(self.weights))
            loss = nn.functional.cross_entropy(logits, self.y)
        self.scaler.scale(loss * LOSS_SCALE).backward()
        parameters = list(self.model.parameters())
        gradients = torch.cat([p.grad.flatten() for p in parameters])
        self.lost_gradients = (gradients == 0).float().mean().item()
        before = [p.detach().clone() for p in parameters]
        for copy, parameter in zip(self.copies, parameters, strict=False):
            copy.grad = parameter.grad.float()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        for copy, parameter in zip(self.copies, parameters, strict=False):
            parameter.data.copy_(copy)
        kept = [(new == old).float() for new, old in zip(parameters, before, strict=True)]
        self.swallowed = torch.cat([each.flatten() for each in kept]).mean().item()
        self.model.zero_grad()
        return loss.item()


def formats() -> Iterator[tuple[str, Training]]:
    """Each format with its training."""
    yield "fp32", Training()
    yield "autocast bf16", Training(autocast=torch.bfloat16)
    yield "autocast fp16", Training(autocast=torch.float16)
    yield "autocast fp16, scaler", Training(autocast=torch.float16, scaler=True)
    yield "pure bf16", Training(weights=torch.bfloat16)
    yield "pure bf16, master weights", Training(weights=torch.bfloat16, master=True)


def types_under(dtype: torch.dtype) -> dict[str, torch.dtype]:
    """The type of each part of the model under autocast."""
    training = Training(autocast=dtype)
    found = {"weights": training.model.fc1.weight.dtype}
    for name, module in training.model.named_children():
        module.register_forward_hook(
            lambda _, inputs, output, name=name: found.update({f"output of {name}": output.dtype})
        )
    with torch.autocast("cpu", dtype):
        loss = nn.functional.cross_entropy(training.model(training.x), training.y)
    loss.backward()
    return found | {"loss": loss.dtype, "gradients": training.model.fc1.weight.grad.dtype}


def what_profkit_says(training: Training) -> list[str]:
    """The precision section's sentences on one recorded step."""
    with torch.profiler.profile(record_shapes=True) as profiler:
        training.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        report = profkit.analyze(path).document
    said = [finding.message for finding in report.precision_findings]
    if report.autocast:
        said.append(f"Autocast to {', '.join(report.autocast.types)} added {report.autocast.casts} casts.")
        said += [row.message for row in report.autocast.operators if not row.by_design]
    return said


def what_the_recorder_says(training: Training) -> list[str]:
    """The findings of `profkit.numerics` on four steps: of what tensors hold, not of which types they have."""
    with tempfile.TemporaryDirectory() as folder:
        with profkit.numerics(training.model, every=1, folder=folder) as recorder:
            for _ in range(4):
                training.step()
        (numerics,) = profkit.analyze(recorder.file).document.numerics
    return [finding.message for finding in numerics.findings]


def main(steps: int = 100) -> None:
    torch.set_num_threads(1)  # the model is so small that threads only wait for each other
    print("Types under autocast to bf16 (on a GPU the layer norm gives fp32, as it is on the GPU's list):")
    for part, dtype in types_under(torch.bfloat16).items():
        print(f"  {part:16} {str(dtype).removeprefix('torch.')}")
    print(
        f"\nThe loss after {steps} steps, gradients that are zero, weights that the last update did not change:"
    )
    for name, training in formats():
        losses = [training.step() for _ in range(steps)]
        lost, swallowed = f"{training.lost_gradients:.0%}", f"{training.swallowed:.0%}"
        print(
            f"{name:26} loss {losses[-1]:.4f}   zero gradients {lost:>4}   weights unchanged {swallowed:>4}"
        )
        for line in what_profkit_says(training) + what_the_recorder_says(training):
            print(f"    profkit: {line}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
