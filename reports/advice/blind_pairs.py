"""The pairs of the second blind study: none of the first, other sizes, types, batches and ways.

Fixed before they are run, with the model. Most valuable first; what compiles comes last, since it takes longest.
``EXPECTED`` is what a person expects of each: ``change`` (20 % or more), ``little``, or ``unclear``.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import loader
import pinned_copies
import steps
import syncs
import torch
import torch.nn.functional as F
from torch import nn

TINY = bool(os.environ.get("BLIND_TINY"))
"""Sizes for a try on a CPU."""
BF16 = torch.bfloat16


def size(**wanted: int) -> dict[str, int]:
    most = {"batch": 2, "length": 16, "width": 64, "layers": 2, "vocab": 101, "size": 16, "rows": 16}
    return {k: min(v, most[k]) if TINY else v for k, v in wanted.items()}


def mlp(**options: Any) -> Any:
    numbers = {k: options.pop(k) for k in ("batch", "width", "layers") if k in options}
    return partial(steps.mlp, **size(**numbers), **options)


def gpt(**options: Any) -> Any:
    numbers = {k: options.pop(k) for k in ("batch", "length", "width", "layers", "vocab") if k in options}
    return partial(steps.gpt, **size(**numbers), **options)


def convnet(**options: Any) -> Any:
    numbers = {k: options.pop(k) for k in ("batch", "size") if k in options}
    return partial(steps.convnet, **size(**numbers), **options)


def sgd(parameters: Any, **options: Any) -> Any:
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **options)


def adam(**options: Any) -> Any:
    return partial(steps.adamw, **options)


def zeroed(set_to_none: bool) -> Any:
    """A wide network with few rows: gradients are most of the traffic."""

    def build() -> Any:
        torch.manual_seed(0)
        n = size(width=12288, layers=4, rows=128)
        model = nn.Sequential(*[nn.Linear(n["width"], n["width"]) for _ in range(n["layers"])])
        model = model.to(steps.DEVICE, BF16)
        x = torch.randn(n["rows"], n["width"], device=steps.DEVICE, dtype=BF16)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        return steps.training(lambda: model(x).float().square().mean(), optimizer, set_to_none=set_to_none)

    return build


class Waiting(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that come from a slow disk."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.0005)
        return torch.full((512,), float(index % 7))


def read(workers: int) -> Any:
    """Training on samples from a slow disk."""

    def build() -> Any:
        options: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
        data = torch.utils.data.DataLoader(Waiting(), batch_size=32, num_workers=workers, **options)
        batches = iter(data)
        model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)]).to(steps.DEVICE)
        update = steps.training(
            lambda: model(next(batches).to(steps.DEVICE)).square().mean(), sgd(model.parameters())
        )
        return update

    return build


def pinned(build: Any, rows: int, width: int) -> Any:
    """One side of the example of pinned copies, at another size."""

    def built() -> Any:
        n = size(rows=rows, width=width)
        pinned_copies.ROWS, pinned_copies.WIDTH = n["rows"], n["width"]
        return build()

    return built


def looked_at(width: int, rows: int, layers: int, watch: bool) -> Any:
    n = size(width=width, rows=rows, layers=layers)
    return partial(syncs.logged, n["width"], n["rows"], n["layers"], watch)


def emptied(watch: bool) -> Any:
    def build() -> Any:
        run = mlp(batch=512, width=1024, layers=6, optimizer=adam(fused=True))()

        def step() -> Any:
            loss = run()
            if watch and torch.cuda.is_available():
                torch.cuda.empty_cache()
            return loss

        return step

    return build


def gated(compiled: bool) -> Any:
    """A gate over 16-bit activations, forward and backward."""

    def build() -> Any:
        torch.manual_seed(0)
        x = torch.randn(1 << (10 if TINY else 25), device=steps.DEVICE, dtype=BF16, requires_grad=True)

        def body(y: Any) -> Any:
            for _ in range(3):
                y = F.silu(y) * (y + 1.0) - 0.5 * y
            return y.float().mean()

        run = torch.compile(body) if compiled else body
        return steps.training(lambda: run(x), torch.optim.SGD([x], lr=0.1))

    return build


def normed(compiled: bool) -> Any:
    """Root-mean-square norms written by hand and residuals, in inference."""

    def build() -> Any:
        torch.manual_seed(0)
        n = size(rows=32768, width=2048)
        x = torch.randn(n["rows"], n["width"], device=steps.DEVICE)
        scale = torch.ones(n["width"], device=steps.DEVICE)

        def body(y: Any) -> Any:
            for _ in range(3):
                y = y + torch.relu(y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * scale)
            return y

        run = torch.compile(body) if compiled else body

        def step() -> Any:
            with torch.no_grad():
                return run(x)

        return step

    return build


tf32 = steps.with_tf32
deep = mlp(batch=2048, width=3072, layers=5, optimizer=sgd)
wide_gpt = gpt(batch=4, length=256, width=1536, layers=2, vocab=16384, optimizer=adam(fused=True))
narrow_gpt = partial(gpt, batch=8, length=1024, width=768, layers=2, vocab=4096)
capturable = adam(fused=True, capturable=True)
small_gpt = gpt(batch=1, length=64, width=512, layers=3, vocab=2048, optimizer=capturable)
images = partial(convnet, batch=160, size=128)
kept = partial(
    gpt, batch=16, length=512, width=2048, layers=2, vocab=4096, amp=BF16, optimizer=adam(fused=True)
)
worded = partial(gpt, batch=16, length=256, width=768, layers=1, amp=BF16, optimizer=adam(fused=True))
doubled = partial(mlp, batch=1536, width=1536, layers=4)
heavy = partial(mlp, batch=128, width=6144, layers=4, amp=BF16)
ordinary = partial(
    gpt, batch=32, length=512, width=1024, layers=1, vocab=8192, amp=BF16, optimizer=adam(fused=True)
)
looped = partial(mlp, batch=64, width=256, layers=8)
by_itself = adam(foreach=False)

Pair = tuple[list[str], int | None, str, Any, Any]
PAIRS: dict[str, Pair] = {
    "tf32_deep_mlp": (["tf32"], None, "change", deep, tf32(deep)),
    "bf16_narrow_gpt_tf32": (["bf16"], None, "change", tf32(narrow_gpt()), tf32(narrow_gpt(amp=BF16))),
    "fused_single_mlp_256": (["fused-optimizer"], None, "change", looped(optimizer=by_itself), looped(optimizer=adam(fused=True))),
    "graph_small_gpt": (["cuda-graphs"], None, "change", small_gpt, steps.graphed(small_gpt)),
    "attention_1024": (["fused-attention"], None, "change", narrow_gpt(naive=True, amp=BF16), narrow_gpt(amp=BF16)),
    "fused_foreach_heavy": (["fused-optimizer"], None, "change", heavy(optimizer=adam(foreach=True)), heavy(optimizer=adam(fused=True))),
    "item_every_layer": (["no-sync"], None, "unclear", looked_at(256, 128, 24, True), looked_at(256, 128, 24, False)),
    "tf32_tiny_mlp": (["tf32"], None, "little", mlp(batch=16, width=64, layers=10), tf32(mlp(batch=16, width=64, layers=10))),
    "channels_last_large": (["channels-last"], None, "change", images(amp=BF16), images(amp=BF16, channels_last=True)),
    "vocabulary_32001": (["aligned"], None, "change", worded(vocab=32001), worded(vocab=32064)),
    "pinned_wide": (["pinned"], None, "change", pinned(pinned_copies.pageable, 4096, 3072), pinned(pinned_copies.prefetched, 4096, 3072)),
    "zeroed_wide": (["set-to-none"], None, "change", zeroed(False), zeroed(True)),
    "fp64_to_tf32": (["fp32", "tf32"], None, "change", doubled(dtype=torch.float64), tf32(doubled())),
    "foreach_single_sgd": (["foreach-optimizer"], None, "change", looped(optimizer=partial(sgd, foreach=False)), looped(optimizer=partial(sgd, foreach=True))),
    "graph_wide_gpt": (["cuda-graphs"], None, "little", kept(optimizer=capturable), steps.graphed(kept(optimizer=capturable))),
    "item_large": (["no-sync"], None, "little", looked_at(4096, 16384, 6, True), looked_at(4096, 16384, 6, False)),
    "bf16_wide_gpt": (["bf16"], None, "change", wide_gpt, partial(wide_gpt, amp=BF16)),
    "checkpoint_wide": (["no-checkpointing"], None, "change", kept(checkpointed=True), kept()),
    "emptied_mlp": (["no-allocation"], None, "change", emptied(True), emptied(False)),
    "bf16_small_images": (["bf16"], None, "unclear", convnet(batch=8, size=64, channels_last=True), convnet(batch=8, size=64, channels_last=True, amp=BF16)),
    "graph_small_images": (["cuda-graphs"], None, "change", convnet(batch=8, size=64), steps.graphed(convnet(batch=8, size=64))),
    "fused_foreach_small": (["fused-optimizer"], None, "little", looped(optimizer=adam(foreach=True)), looped(optimizer=adam(fused=True))),
    "disk_4_workers": ([], 4, "change", read(0), read(4)),
    "loader_2_workers": ([], 2, "change", partial(loader.loading, 0), partial(loader.loading, 2)),
    "zeroed_small_gpt": (["set-to-none"], None, "little", gpt(batch=4, length=128, width=512, layers=2, amp=BF16, set_to_none=False), gpt(batch=4, length=128, width=512, layers=2, amp=BF16)),
    "compile_norms": (["compile"], None, "change", normed(False), normed(True)),
    "tuned_ordinary": ([], None, "little", ordinary(compiled=True), ordinary(compiled=True)),
    "compile_gate": (["compile"], None, "change", gated(False), gated(True)),
    "compile_ordinary": (["compile"], None, "unclear", ordinary(), ordinary(compiled=True)),
}  # fmt: skip
"""Changes as profkit names them, loader workers, what is expected, and how both sides are built."""
COMPILED = frozenset({"compile_norms", "compile_gate", "tuned_ordinary", "compile_ordinary"})
EXPECTED = {name: pair[2] for name, pair in PAIRS.items()}
