"""The pairs of the third blind study: models that people train, none of those of the first two studies.

Written without sight of the model of what changes bring, and fixed before they are run. Most valuable first; what
compiles comes last, since it takes longest. ``EXPECTED`` is what a person expects of each: ``change`` (20 % or more),
``little``, or ``unclear``. Most networks are in `third_models.py`, the steps
around them in `third_ways.py`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import steps
import torch
import torch.nn.functional as F
from steps import BF16, DEVICE
from third_models import (
    TINY,
    Llama,
    bert,
    denoiser,
    llama,
    lstm,
    mixer,
    resnet,
    size,
    squared,
    unet,
    vit,
    wavenet,
)
from third_ways import Reviews, Scans, emptied, inferred, loaded, looked, pageable, prefetched, trained
from torch import nn

import profkit


class Recommender(nn.Module):
    """Tables of 26 kinds, and their products with one another."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(26))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        top = [m for a, b in ((351 + width, 1024), (1024, 512)) for m in (nn.Linear(a, b), nn.ReLU())]
        self.top = nn.Sequential(*top, nn.Linear(512, 1))
        self.register_buffer("pairs", torch.triu_indices(27, 27, 1))

    def forward(self, dense: Any, ids: Any) -> Any:
        known = self.bottom(dense)
        parts = torch.stack([known, *(t(ids[:, n]) for n, t in enumerate(self.tables))], 1)
        products = (parts @ parts.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([known, products], 1))[:, 0]


def recommender(*, batch: int = 8192, vocab: int = 200_000) -> Any:
    batch, vocab, width = size(batch=batch, vocab=vocab, width=64)
    inputs = (
        torch.randn(batch, 13),
        torch.randint(0, vocab, (batch, 26)),
        torch.randint(0, 2, (batch,)).float(),
    )
    loss = lambda run, x, ids, y: F.binary_cross_entropy_with_logits(run(x, ids), y)  # noqa: E731
    return Recommender(vocab, width), inputs, loss


def tabular(*, batch: int = 8192, width: int = 1024, dtype: Any = torch.float32) -> Any:
    """Regression on 256 columns."""
    batch, width = size(batch=batch, width=width)
    layers: list[nn.Module] = []
    for inner in (256, *[width] * 4):
        layers += [nn.Linear(inner, width), nn.BatchNorm1d(width), nn.SiLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).to(dtype)
    return model, (torch.randn(batch, 256).to(dtype), torch.randn(batch, 1).to(dtype)), squared


class Forecast(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(32, width, 2, batch_first=True), nn.Linear(width, 24)

    def forward(self, x: Any) -> Any:
        return self.head(self.rnn(x)[0][:, -1])


def gru(*, batch: int = 512, length: int = 48, width: int = 512, dtype: torch.dtype = torch.float32) -> Any:
    """The next day of 32 series, from the two days before."""
    batch, length, width = size(batch=batch, length=length, width=width)
    x, y = torch.randn(batch, length, 32).to(dtype), torch.randn(batch, 24).to(dtype)
    return Forecast(width).to(dtype), (x, y), squared


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*[m for a in (64, 256) for m in (nn.Linear(a, 256), nn.Tanh())])
        self.acts, self.worth = nn.Linear(256, 6), nn.Linear(256, 1)

    def forward(self, x: Any) -> Any:
        h = self.body(x)
        return self.acts(h).log_softmax(-1), self.worth(h)[:, 0]


def policy() -> Any:
    """Proximal policy optimization on one small batch."""
    rows = 256
    acts, gain, was = torch.randint(0, 6, (rows, 1)), torch.randn(rows), torch.full((rows,), math.log(1 / 6))

    def loss(run: Any, x: Any) -> Any:
        logs, worth = run(x)
        ratio = (logs.gather(1, acts)[:, 0] - was).exp()
        won = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        return 0.5 * F.mse_loss(worth, gain) - won + 0.01 * (logs.exp() * logs).sum(-1).mean()

    return Policy(), (torch.randn(rows, 64),), loss


def gan() -> Any:
    """Two small networks of convolutions against each other, each with its optimizer."""
    torch.manual_seed(0)
    batch, base = size(batch=32, channels=64)
    up: list[nn.Module] = [
        nn.ConvTranspose2d(100, 4 * base, 4, bias=False),
        nn.BatchNorm2d(4 * base),
        nn.ReLU(),
    ]
    down: list[nn.Module] = [nn.Conv2d(3, base, 4, 2, 1), nn.LeakyReLU(0.2)]
    for a in (4, 2):
        up += [
            nn.ConvTranspose2d(a * base, a * base // 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(a * base // 2),
        ]
        up.append(nn.ReLU())
        down += [nn.Conv2d(4 * base // a, 8 * base // a, 4, 2, 1, bias=False), nn.BatchNorm2d(8 * base // a)]
        down.append(nn.LeakyReLU(0.2))
    maker = nn.Sequential(*up, nn.ConvTranspose2d(base, 3, 4, 2, 1), nn.Tanh()).to(DEVICE)
    judge = nn.Sequential(*down, nn.Conv2d(4 * base, 1, 4), nn.Flatten()).to(DEVICE)
    real = torch.randn(batch, 3, 32, 32, device=DEVICE)
    options: dict[str, Any] = {"lr": 2e-4, "betas": (0.5, 0.999), "capturable": DEVICE == "cuda"}
    ours, theirs = (torch.optim.Adam(m.parameters(), **options) for m in (maker, judge))
    made: list[Any] = []

    def judged() -> Any:
        made[:] = [maker(torch.randn(batch, 100, 1, 1, device=DEVICE))]
        return F.softplus(-judge(real)).mean() + F.softplus(judge(made[0].detach())).mean()

    judging = steps.training(judged, theirs)
    making = steps.training(lambda: F.softplus(-judge(made[0])).mean(), ours)

    def step() -> Any:
        judging()
        loss = making()
        theirs.zero_grad()
        return loss

    return step


def decoded() -> Any:
    """One more token for each of four texts, over the keys and values of those before."""
    torch.manual_seed(0)
    length, width, layers, vocab = size(length=512, width=1024, layers=8, vocab=32000)
    with torch.device(DEVICE):
        model = Llama(length, width, layers, vocab, True, False).to(BF16).eval()
        ids, at, every = torch.randint(0, vocab, (4, 1)), torch.tensor([3]), torch.arange(length)
        shape = (4, max(width // 64, 1), length, 64)
        caches = [[torch.zeros(shape, dtype=BF16) for _ in range(2)] for _ in range(layers)]

    def step() -> Any:
        with profkit.phase("forward"), torch.no_grad():
            x, seen = model.words(ids), (every <= at)[None, None, None]
            cos, sin = model.cos[at], model.sin[at]
            for layer, cache in zip(model.layers, caches, strict=True):
                x = layer(x, cos, sin, (*cache, at, seen))
            ids.copy_(model.head(model.norm(x))[:, -1].argmax(-1, keepdim=True))
            at.add_(1).remainder_(length)
        return ids

    return step


def focal(compiled: bool) -> Any:
    """The focal loss of a detector: many anchors, few of them of a class."""

    def build() -> Any:
        torch.manual_seed(0)
        scores = torch.randn(4 if TINY else 6 * 100_000, 80, device=DEVICE, requires_grad=True)
        wanted = (torch.rand_like(scores) < 0.01).float()

        def body(x: Any) -> Any:
            p = torch.sigmoid(x)
            right = p * wanted + (1 - p) * (1 - wanted)
            weight = (0.25 * wanted + 0.75 * (1 - wanted)) * (1 - right) ** 2
            return (weight * F.binary_cross_entropy_with_logits(x, wanted, reduction="none")).mean()

        run = torch.compile(body) if compiled else body
        return steps.training(lambda: run(scores), torch.optim.SGD([scores], lr=0.1))

    return build


def augmented(compiled: bool) -> Any:
    """Bytes to images of other brightness, contrast, saturation and gamma."""

    def build() -> Any:
        torch.manual_seed(0)
        shape = (4, 3, 16, 16) if TINY else (192, 3, 224, 224)
        images = torch.randint(0, 256, shape, device=DEVICE, dtype=torch.uint8)
        bright, contrast, color, gamma = (
            torch.rand(len(images), 1, 1, 1, device=DEVICE) + 0.5 for _ in range(4)
        )

        def body(x: Any) -> Any:
            x = (x.float() / 255 * bright).clamp(0, 1)
            gray = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
            x = (gray + (x - gray) * color).clamp(0, 1)
            x = ((x - 0.5) * contrast + 0.5).clamp(0.001, 1) ** gamma
            return ((x - 0.45) / 0.225).to(BF16)

        run = torch.compile(body) if compiled else body

        def step() -> Any:
            with profkit.phase("forward"), torch.no_grad():
                return run(images)

        return step

    return build


def sgd(parameters: Any, **options: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4, **options)


tf32 = steps.with_tf32
adam = partial(torch.optim.Adam, lr=1e-3)
plain = partial(torch.optim.SGD, lr=1e-2)
fused = partial(steps.adamw, fused=True)
single, foreach = partial(steps.adamw, foreach=False), partial(steps.adamw, foreach=True)
capturable = partial(adam, capturable=DEVICE == "cuda")
pictures = partial(trained, resnet, optimizer=sgd)
masks = partial(trained, unet, optimizer=fused)
words = partial(trained, bert, optimizer=fused)
told = partial(trained, bert, optimizer=fused, classes=2)
text = partial(trained, llama, optimizer=fused)
seeing = partial(trained, vit, optimizer=fused)
little_mixer, little_policy = partial(trained, mixer), partial(trained, policy, optimizer=capturable)
tables = partial(trained, recommender)
columns = partial(trained, tabular, optimizer=fused)
many_masks = trained(unet, optimizer=sgd, batch=16, amp=BF16, last=True)
tuned = text(amp=BF16, compiled=True)

Pair = tuple[list[str], int | None, str, Any, Any]
PAIRS: dict[str, Pair] = {
    "tf32_bert": (["tf32"], None, "change", words(), tf32(words())),
    "bf16_resnet": (["bf16"], None, "change", pictures(batch=96, last=True), pictures(batch=96, last=True, amp=BF16)),
    "graph_policy": (["cuda-graphs"], None, "change", little_policy(), steps.graphed(little_policy())),
    "fused_single_bert": (["fused-optimizer"], None, "change", told(batch=8, length=128, amp=BF16, optimizer=single), told(batch=8, length=128, amp=BF16)),
    "attention_bert_512": (["fused-attention"], None, "change", told(batch=32, length=512, amp=BF16), told(batch=32, length=512, amp=BF16, fused=True)),
    "channels_last_resnet": (["channels-last"], None, "change", pictures(amp=BF16), pictures(amp=BF16, last=True)),
    "loader_mixer_4_workers": ([], 4, "change", little_mixer(batch=64, feed=loaded(Scans(), 0)), little_mixer(batch=64, feed=loaded(Scans(), 4))),
    "item_every_sample": (["no-sync"], None, "change", trained(looked(mixer, True), batch=256, each=True), trained(looked(mixer, False), batch=256, each=True)),
    "pinned_resnet_inference": (["pinned"], None, "change", inferred(resnet, batch=128, last=True, feed=pageable), inferred(resnet, batch=128, last=True, feed=prefetched)),
    "tf32_resnet": (["tf32"], None, "little", pictures(size_=176), tf32(pictures(size_=176))),
    "aligned_bert_vocabulary": (["aligned"], None, "change", words(batch=32, layers=4, amp=BF16), words(batch=32, layers=4, amp=BF16, vocab=30528)),
    "checkpoint_llama": (["no-checkpointing"], None, "change", text(length=2048, amp=BF16, checkpointed=True), text(length=2048, amp=BF16)),
    "fp32_gru": (["fp32"], None, "change", trained(gru, dtype=torch.float64, optimizer=adam), trained(gru, optimizer=adam)),
    "bf16_channels_last_unet": (["bf16", "channels-last"], None, "change", masks(), masks(amp=BF16, last=True)),
    "bf16_llama": (["bf16"], None, "change", tf32(text(layers=6)), tf32(text(layers=6, amp=BF16))),
    "zeroed_recommender": (["set-to-none"], None, "change", tables(optimizer=plain, set_to_none=False), tables(optimizer=plain)),
    "fused_foreach_recommender": (["fused-optimizer"], None, "change", tables(optimizer=partial(adam, foreach=True)), tables(optimizer=partial(adam, fused=True))),
    "emptied_unet": (["no-allocation"], None, "change", emptied(masks(amp=BF16, last=True)), masks(amp=BF16, last=True)),
    "graph_gan": (["cuda-graphs"], None, "change", gan, steps.graphed(gan)),
    "tf32_policy": (["tf32"], None, "little", little_policy(), tf32(little_policy())),
    "fp64_to_tf32_tabular": (["fp32", "tf32"], None, "change", columns(dtype=torch.float64), tf32(columns())),
    "attention_llama_2048": (["fused-attention"], None, "change", text(batch=4, length=2048, amp=BF16, fused=False), text(batch=4, length=2048, amp=BF16)),
    "loader_lstm_2_workers": ([], 2, "change", tf32(trained(lstm, width=650, vocab=10240, feed=loaded(Reviews(), 0))), tf32(trained(lstm, width=650, vocab=10240, feed=loaded(Reviews(), 2)))),
    "foreach_single_mixer": (["foreach-optimizer"], None, "change", little_mixer(optimizer=single), little_mixer(optimizer=foreach)),
    "item_checked_llama": (["no-sync"], None, "little", trained(looked(llama, True), amp=BF16, optimizer=fused), trained(looked(llama, False), amp=BF16, optimizer=fused)),
    "tf32_vit_small": (["tf32"], None, "change", seeing(width=384, layers=8), tf32(seeing(width=384, layers=8))),
    "pinned_tabular": (["pinned"], None, "change", columns(batch=65536, amp=BF16, feed=pageable), columns(batch=65536, amp=BF16, feed=prefetched)),
    "graph_decode": (["cuda-graphs"], None, "change", decoded, steps.graphed(decoded)),
    "bf16_small_mixer": (["bf16"], None, "little", little_mixer(), little_mixer(amp=BF16)),
    "bf16_attention_bert": (["bf16", "fused-attention"], None, "change", tf32(told(length=384)), tf32(told(length=384, amp=BF16, fused=True))),
    "checkpoint_vit": (["no-checkpointing"], None, "change", seeing(batch=128, amp=BF16, checkpointed=True), seeing(batch=128, amp=BF16)),
    "aligned_lstm_vocabulary": (["aligned"], None, "unclear", tf32(trained(lstm)), tf32(trained(lstm, vocab=33280))),
    "foreach_single_resnet_sgd": (["foreach-optimizer"], None, "unclear", pictures(batch=16, size_=128, last=True, amp=BF16, optimizer=partial(sgd, foreach=False)), pictures(batch=16, size_=128, last=True, amp=BF16, optimizer=partial(sgd, foreach=True))),
    "graph_unet": (["cuda-graphs"], None, "little", many_masks, steps.graphed(many_masks)),
    "fused_foreach_llama": (["fused-optimizer"], None, "little", text(batch=16, amp=BF16, optimizer=foreach), text(batch=16, amp=BF16)),
    "loader_vit_6_workers": ([], 6, "little", seeing(size_=32, patch=4, layers=12, feed=loaded(Scans(), 0)), seeing(size_=32, patch=4, layers=12, feed=loaded(Scans(), 6))),
    "compile_llama": (["compile"], None, "change", text(amp=BF16), text(amp=BF16, compiled=True)),
    "compile_focal_loss": (["compile"], None, "change", focal(False), focal(True)),
    "compile_denoiser": (["compile"], None, "change", trained(denoiser, amp=BF16), trained(denoiser, amp=BF16, compiled=True)),
    "compile_augmentation": (["compile"], None, "change", augmented(False), augmented(True)),
    "compile_bert": (["compile"], None, "change", words(amp=BF16), words(amp=BF16, compiled=True)),
    "compile_wavenet": (["compile"], None, "change", trained(wavenet), trained(wavenet, compiled=True)),
    "compile_vit": (["compile"], None, "unclear", seeing(amp=BF16), seeing(amp=BF16, compiled=True)),
    "tuned_llama": ([], None, "little", tuned, tuned),
}  # fmt: skip
"""Changes as profkit names them, loader workers, what is expected, and how both sides are built."""
COMPILED = frozenset(name for name in PAIRS if name.startswith(("compile_", "tuned_")))
EXPECTED = {name: pair[2] for name, pair in PAIRS.items()}
