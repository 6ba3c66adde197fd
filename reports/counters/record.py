"""One training step of two small programs, as a Kineto trace or under Nsight Compute.

    python record.py convnet trace OUT.json.gz         # torch.profiler with shapes, one step
    ncu --csv --page raw --profile-from-start off --clock-control none --metrics "$METRICS" \
        python record.py convnet plain > OUT.csv       # counters of the same step

Both run the same step on the same inputs, so that kernels match by name, grid, block and order. `METRICS` is below.
Recorded with torch 2.11 and ncu 2025.3 on an NVIDIA H100; record.sh runs all of it.
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

METRICS = (
    "gpu__time_duration.sum,dram__bytes.sum,dram__bytes_read.sum,dram__bytes_write.sum,"
    "sm__throughput.avg.pct_of_peak_sustained_elapsed,gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed,"
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active,"
    "sm__warps_active.avg.pct_of_peak_sustained_active"
)


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norm around a shortcut."""

    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


class Block(nn.Module):
    """A transformer block with attention written out, layer norm and GELU."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def convnet():
    """Residual blocks in bf16 by autocast, channels_last, SGD."""
    layers = [nn.Conv2d(3, 64, 7, stride=2, padding=3), Residual(64), nn.MaxPool2d(2), Residual(64)]
    model = nn.Sequential(
        *layers,
        nn.Conv2d(64, 256, 1),
        Residual(256),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, 1000),
    )
    model = model.cuda().to(memory_format=torch.channels_last)
    x = torch.randn(64, 3, 128, 128, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(1000, (64,), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, x, y, optimizer, torch.bfloat16


def mixed():
    """A transformer in fp16 by autocast beside a head in fp32 with TF32, per-tensor Adam."""
    model = nn.Sequential(
        nn.Linear(512, 768), *(Block(768, 12) for _ in range(2)), nn.Linear(768, 1000)
    ).cuda()
    x = torch.randn(16, 256, 512, device="cuda")
    y = torch.randint(1000, (16 * 256,), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return model, x, y, optimizer, torch.float16


def main(program, mode, out=None):
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    model, x, y, optimizer, dtype = {"convnet": convnet, "mixed": mixed}[program]()
    body, head = (model, nn.Identity()) if program == "convnet" else (model[:-1], model[-1])

    def step():
        with torch.profiler.record_function("forward"):
            with torch.autocast("cuda", dtype):
                hidden = body(x)
            loss = F.cross_entropy(head(hidden.float()).flatten(0, -2), y)
        with torch.profiler.record_function("backward"):
            loss.backward()
        with torch.profiler.record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    if mode == "trace":
        with torch.profiler.profile(record_shapes=True) as profiler:
            step()
            torch.cuda.synchronize()
        profiler.export_chrome_trace(out)
    else:
        torch.cuda.cudart().cudaProfilerStart()
        step()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    if sys.argv[1] == "metrics":
        print(METRICS)
    else:
        main(*sys.argv[1:])
