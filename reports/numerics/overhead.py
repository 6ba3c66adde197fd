"""What recording numerics costs: the time of a step with and without, in turns.

``python reports/numerics/overhead.py OUT [SECONDS]`` trains a small GPT on the GPU, or on the CPU where there is none, and
appends a line of JSON to OUT/overhead.jsonl for each pair of runs, until the time is up. A step that is looked at costs
``sampled - plain``, so at every=100 the overhead is a hundredth of that, and the recorder's own work in the other steps.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

import profkit


class Block(torch.nn.Module):
    """A block of a GPT."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention and a perceptron."""
        batch, length, width = x.shape
        heads = self.qkv(self.norm(x)).view(batch, length, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


def step_times(every: int | None, steps: int, device: str) -> list[float]:
    """Seconds of processor time (CPU) or wall time (GPU) of each step."""
    torch.manual_seed(0)
    width, layers, batch, length = (768, 12, 8, 1024) if device == "cuda" else (256, 4, 4, 128)
    model = torch.nn.Sequential(*(Block(width) for _ in range(layers))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    data = torch.randn(batch, length, width, device=device)
    clock = time.perf_counter if device == "cuda" else time.process_time
    times = []
    with tempfile.TemporaryDirectory() as folder:
        recorder = None if every is None else profkit.numerics(model, every=every, folder=folder)
        for _ in range(steps):
            begun = clock()
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(clock() - begun)
        if recorder is not None:
            recorder.stop()
    return times


def main(out: Path, seconds: float) -> None:
    """Measure in turns until the time is up."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    step_times(4, 5, device)
    while time.monotonic() < end:
        plain, looked = step_times(None, 12, device)[4:], step_times(4, 13, device)[4:]
        sampled, between = looked[::4], [t for at, t in enumerate(looked) if at % 4]
        base = statistics.median(plain)
        row = {
            "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
            "torch": str(torch.__version__),
            "plain_s": base,
            "sampled_s": statistics.median(sampled),
            "between_s": statistics.median(between),
            "overhead_at_100": (statistics.median(sampled) + 99 * statistics.median(between)) / (100 * base)
            - 1,
            "sampled_share_at_100": (statistics.median(sampled) - base) / (100 * base),
        }
        with (out / "overhead.jsonl").open("a") as sink:
            sink.write(json.dumps(row) + "\n")
        print(row, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 60)
