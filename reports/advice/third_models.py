"""The models of the third blind study, written for it: what people train, at sizes from host-bound to device-bound.

A maker returns a model, its inputs and a loss: a function of what to run (the model, or the compiled model) and the
inputs. It is called where new tensors are born on the device.
"""

from __future__ import annotations

import math
import os
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

TINY = bool(os.environ.get("BLIND_TINY"))
"""Sizes for a try on a CPU."""
MOST = {"batch": 4, "length": 16, "width": 64, "layers": 2, "vocab": 101, "size": 32, "channels": 8}


def size(**wanted: int) -> Any:
    return [min(v, MOST[k]) if TINY else v for k, v in wanted.items()]


def laid(model: nn.Module, x: torch.Tensor, last: bool) -> tuple[nn.Module, torch.Tensor]:
    order = torch.channels_last if last else torch.contiguous_format
    return model.to(memory_format=order), x.to(memory_format=order)


def classified(run: Any, x: Any, y: Any) -> Any:
    return F.cross_entropy(run(x).float(), y)


def predicted(run: Any, ids: Any) -> Any:
    """The next token of each."""
    return F.cross_entropy(run(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())


def squared(run: Any, x: Any, y: Any) -> Any:
    return F.mse_loss(run(x), y)


def attention(q: Any, k: Any, v: Any, *, fused: bool, causal: bool = False, drop: float = 0.0) -> Any:
    if fused:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=causal)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return F.dropout(scores.softmax(-1), drop) @ v


class Bottleneck(nn.Module):
    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        outer = 4 * inner
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True)),
            *(nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)),
            *(nn.ReLU(inplace=True), nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer)),
        )
        self.skip = nn.Identity()
        if stride > 1 or channels != outer:
            self.skip = nn.Sequential(
                nn.Conv2d(channels, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: Any) -> Any:
        return F.relu(self.body(x) + self.skip(x), inplace=True)


def resnet(*, batch: int = 64, size_: int = 224, last: bool = False) -> Any:
    """ResNet-50."""
    batch, size_, inner = size(batch=batch, size=size_, channels=64)
    layers: list[nn.Module] = [nn.Conv2d(3, inner, 7, 2, 3, bias=False), nn.BatchNorm2d(inner), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = inner
    for stage, depth in enumerate((1, 1, 1, 1) if TINY else (3, 4, 6, 3)):
        for block in range(depth):
            layers.append(Bottleneck(channels, inner << stage, 2 if stage and not block else 1))
            channels = 4 * (inner << stage)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
    model, x = laid(model, torch.randn(batch, 3, size_, size_), last)
    return model, (x, torch.randint(0, 1000, (batch,))), classified


class UNet(nn.Module):
    """Four levels, two convolutions on each way."""

    def __init__(self, base: int, classes: int) -> None:
        super().__init__()
        widths = [base, 2 * base, 4 * base, 8 * base]
        self.down = nn.ModuleList(self.two(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
        self.up = nn.ModuleList(self.two(2 * w, w) for w in widths[-2::-1])
        self.head = nn.Conv2d(base, classes, 1)

    @staticmethod
    def two(a: int, b: int) -> nn.Module:
        pairs = ((nn.Conv2d(n, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)) for n in (a, b))
        return nn.Sequential(*[m for pair in pairs for m in pair])

    def forward(self, x: Any) -> Any:
        kept = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        kept.pop()
        for rise, block in zip(self.rise, self.up, strict=True):
            x = block(torch.cat([kept.pop(), rise(x)], 1))
        return self.head(x)


def unet(*, batch: int = 8, size_: int = 256, last: bool = False) -> Any:
    """Segmentation."""
    batch, size_, base = size(batch=batch, size=size_, channels=64)
    model, x = laid(UNet(base, 21), torch.randn(batch, 3, size_, size_), last)
    return model, (x, torch.randint(0, 21, (batch, size_, size_))), classified


class ViT(nn.Module):
    def __init__(self, size_: int, patch: int, width: int, layers: int, checkpointed: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(torch.randn((size_ // patch) ** 2, width) * 0.02)
        options: dict[str, Any] = {
            "dropout": 0.0,
            "activation": "gelu",
            "batch_first": True,
            "norm_first": True,
        }
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, max(width // 64, 1), 4 * width, **options)
            for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)
        self.checkpointed = checkpointed

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(self.norm(x).mean(1))


def vit(
    *, batch: int = 64, size_: int = 224, patch: int = 16, width: int = 768, layers: int = 6, checkpointed: bool = False
) -> Any:  # fmt: skip
    batch, size_, width, layers = size(batch=batch, size=size_, width=width, layers=layers)
    model = ViT(size_, patch, width, layers, checkpointed)
    return model, (torch.randn(batch, 3, size_, size_), torch.randint(0, 1000, (batch,))), classified


class BertLayer(nn.Module):
    """Norms after the sums, dropout after every projection, and attention by hand unless ``fused``."""

    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(0.1)
        self.heads, self.fused = max(width // 64, 1), fused

    def forward(self, x: Any) -> Any:
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        y = attention(q, k, v, fused=self.fused, drop=0.1).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.drop(self.out(y)))
        return self.norm2(x + self.drop(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    """An encoder that fills in words, or that tells ``classes`` apart by the first token."""

    def __init__(self, length: int, layers: int, vocab: int, classes: int, fused: bool) -> None:
        super().__init__()
        (width,) = size(width=768)
        self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.layers = nn.ModuleList(BertLayer(width, fused) for _ in range(layers))
        self.head, self.classes = nn.Linear(width, classes or vocab), classes

    def forward(self, ids: Any) -> Any:
        x = self.drop(self.norm(self.words(ids) + self.places.weight))
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0]) if self.classes else self.head(x).flatten(0, 1)


def bert(
    *, batch: int = 16, length: int = 256, layers: int = 6, vocab: int = 30522, classes: int = 0, fused: bool = False
) -> Any:  # fmt: skip
    batch, length, layers, vocab = size(batch=batch, length=length, layers=layers, vocab=vocab)
    ids = torch.randint(0, min(vocab, 30000), (batch, length))
    wanted = torch.randint(0, classes, (batch,)) if classes else ids.flatten()
    return Bert(length, layers, vocab, classes, fused), (ids, wanted), classified


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        h = x.float()
        return self.weight * (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class LlamaLayer(nn.Module):
    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        inner = 64 * round(width / 24)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.heads, self.fused = max(width // 64, 1), fused

    def forward(self, x: Any, cos: Any, sin: Any, cache: Any = None) -> Any:
        h = self.norm1(x)
        q, k, v = (
            part(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if cache is None:
            y = attention(q, k, v, fused=self.fused, causal=True)
        else:  # one more token: its key and value join what is kept
            keys, values, at, seen = cache
            keys.index_copy_(2, at, k)
            values.index_copy_(2, at, v)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(
        self, length: int, width: int, layers: int, vocab: int, fused: bool, checkpointed: bool
    ) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        self.layers = nn.ModuleList(LlamaLayer(width, fused) for _ in range(layers))
        self.norm, self.checkpointed = RMSNorm(width), checkpointed
        angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, 32) / 32)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids: Any) -> Any:
        x = self.words(ids)
        for layer in self.layers:
            if self.checkpointed:
                x = checkpoint(layer, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


def llama(  # noqa: PLR0913
    *, batch: int = 8, length: int = 1024, width: int = 1024, layers: int = 4, vocab: int = 32000,
    fused: bool = True, checkpointed: bool = False,
) -> Any:  # fmt: skip
    batch, length, width = size(batch=batch, length=length, width=width)
    layers, vocab = size(layers=layers, vocab=vocab)
    model = Llama(length, width, layers, vocab, fused, checkpointed)
    return model, (torch.randint(0, vocab, (batch, length + 1)),), predicted


class WordRNN(nn.Module):
    def __init__(self, width: int, vocab: int) -> None:
        super().__init__()
        self.words, self.rnn = nn.Embedding(vocab, width), nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids: Any) -> Any:
        return self.head(self.rnn(self.words(ids))[0])


def lstm(*, batch: int = 64, length: int = 64, width: int = 1024, vocab: int = 33278) -> Any:
    """A language model of words."""
    batch, length, width, vocab = size(batch=batch, length=length, width=width, vocab=vocab)
    return WordRNN(width, vocab), (torch.randint(0, min(vocab, 33000), (batch, length + 1)),), predicted


class MixerLayer(nn.Module):
    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(places, 128), nn.GELU(), nn.Linear(128, places))
        self.along = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.patches, self.norm, self.head = (
            nn.Conv2d(3, width, 4, 4),
            nn.LayerNorm(width),
            nn.Linear(width, 10),
        )
        self.layers = nn.Sequential(*[MixerLayer(64, width) for _ in range(layers)])

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.layers(self.patches(x).flatten(2).transpose(1, 2))).mean(1))


def mixer(*, batch: int = 16, width: int = 256, layers: int = 8, each: bool = False) -> Any:
    """Small images, and a loss of the batch or of ``each``."""
    batch, width, layers = size(batch=batch, width=width, layers=layers)

    def loss(run: Any, x: Any, y: Any) -> Any:
        return F.cross_entropy(run(x).float(), y, reduction="none" if each else "mean")

    return Mixer(width, layers), (torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))), loss


class Noisy(nn.Module):
    """A block of the denoiser."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, 1, 1) for _ in range(2))
        self.time = nn.Linear(256, channels)

    def forward(self, x: Any, t: Any) -> Any:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class Denoiser(nn.Module):
    def __init__(self, channels: int, layers: int) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, channels, 3, 1, 1), nn.Conv2d(channels, 3, 3, 1, 1)
        self.time = nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 256))
        self.blocks = nn.ModuleList(Noisy(channels) for _ in range(layers))

    def forward(self, x: Any, t: Any) -> Any:
        angles = t[:, None] * torch.exp(-torch.arange(32, device=t.device) / 3.5)
        t, x = self.time(torch.cat([angles.sin(), angles.cos()], 1)), self.first(x)
        for block in self.blocks:
            x = block(x, t)
        return self.last(x)


def denoiser(*, batch: int = 32, size_: int = 64, layers: int = 8) -> Any:
    """Diffusion: a random time and noise for each image."""
    batch, size_, channels, layers = size(batch=batch, size=size_, channels=128, layers=layers)

    def loss(run: Any, x: Any) -> Any:
        t, noise = torch.rand(len(x), device=x.device), torch.randn_like(x)
        share = torch.cos(t * math.pi / 2)[:, None, None, None]
        return F.mse_loss(run(share * x + (1 - share**2).sqrt() * noise, 1000 * t).float(), noise)

    return Denoiser(channels, layers), (torch.randn(batch, 3, size_, size_),), loss


class WaveNet(nn.Module):
    """Gated convolutions over ever longer distances, with residuals and skips."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.samples, self.distances = nn.Embedding(256, width), [2 ** (n % 6) for n in range(layers)]
        self.gated = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=d) for d in self.distances)
        self.mixed = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in self.distances)
        self.head = nn.Conv1d(width, 256, 1)

    def forward(self, ids: Any) -> Any:
        x, skips = self.samples(ids).transpose(1, 2), 0.0
        for distance, gated, mixed in zip(self.distances, self.gated, self.mixed, strict=True):
            a, b = gated(F.pad(x, (distance, 0))).chunk(2, 1)
            more, skip = mixed(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, skips = x + more, skips + skip
        return self.head(F.relu(skips)).transpose(1, 2)


def wavenet(*, batch: int = 16, length: int = 8192, width: int = 128, layers: int = 12) -> Any:
    """The next sample of audio."""
    batch, length, width, layers = size(batch=batch, length=length, width=width, layers=layers)
    return WaveNet(width, layers), (torch.randint(0, 256, (batch, length + 1)),), predicted
