"""How the third blind study trains: a step around a maker of `third_models.py`, and where its inputs come from."""

from __future__ import annotations

from typing import Any

import steps
import torch
from steps import BF16, DEVICE
from third_models import TINY

import profkit


def trained(make: Any, *, amp: Any = None, compiled: bool = False, optimizer: Any = steps.adamw, set_to_none: bool = True, feed: Any = None, **sizes: Any) -> Any:  # fmt: skip
    """A step of training; ``feed`` brings other inputs to every step."""

    def build() -> Any:
        torch.manual_seed(0)
        with torch.device(DEVICE):
            model, inputs, loss_of = make(**sizes)
        run, held, fetch = torch.compile(model) if compiled else model, [inputs], feed and feed(inputs)

        def loss() -> Any:
            with torch.autocast(DEVICE, dtype=amp or BF16, enabled=amp is not None):
                return loss_of(run, *held[0])

        update = steps.training(loss, optimizer(model.parameters()), set_to_none=set_to_none)

        def step() -> Any:
            held[0] = fetch()
            return update()

        return step if fetch else update

    return build


def inferred(make: Any, *, feed: Any, **sizes: Any) -> Any:
    """Inference in 16 bits on inputs that arrive in 32."""

    def build() -> Any:
        torch.manual_seed(0)
        with torch.device(DEVICE):
            model, inputs, _ = make(**sizes)
        model, fetch = model.to(BF16).eval(), feed(inputs)

        def step() -> Any:
            x = fetch()[0]
            with profkit.phase("forward"), torch.no_grad():
                return model(x.to(BF16)).float().mean()

        return step

    return build


def pageable(inputs: Any) -> Any:
    host = [t.cpu() for t in inputs]

    def fetch() -> Any:
        with profkit.phase("upload"):
            return [t.to(DEVICE) for t in host]

    return fetch


def prefetched(inputs: Any) -> Any:
    """The next batch arrives on a side stream while this one is computed."""
    host = [t.cpu().pin_memory() for t in inputs]
    side, ready = torch.cuda.Stream(), []

    def send() -> None:
        with torch.cuda.stream(side):
            ready.append([t.to(DEVICE, non_blocking=True) for t in host])

    send()

    def fetch() -> Any:
        with profkit.phase("upload"):
            torch.cuda.current_stream().wait_stream(side)
            batch = ready.pop()
            for t in batch:
                t.record_stream(torch.cuda.current_stream())
            send()
        return batch

    return fetch


class Scans(torch.utils.data.Dataset[Any]):
    """Small images in runs of a palette, unfolded in Python."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        palette = [bytes((n * k + index) & 255 for k in (1, 3, 5)) for n in range(64)]
        pixels, color = bytearray(), index & 63
        for place in range(32 * 32):
            color = (color + (place * index) % 7 - 3) & 63
            pixels += palette[color]
        image = torch.frombuffer(pixels, dtype=torch.uint8).view(32, 32, 3).permute(2, 0, 1)
        return image / 128 - 1, index % 10


class Reviews(torch.utils.data.Dataset[Any]):
    """Words hashed to numbers, letter by letter."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        ids = []
        for place in range(17 if TINY else 65):
            number = 0
            for letter in f"{index * 7919 + place * 104729:048d}":
                number = (number * 31 + ord(letter)) & 0xFFFFFF
            ids.append(number % (101 if TINY else 10240))
        return (torch.tensor(ids),)


def loaded(data: Any, workers: int, batch: int = 64) -> Any:
    """Batches of a loader, with as many workers."""

    def feed(_: Any) -> Any:
        options: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
        options |= {"batch_size": 4 if TINY else batch, "pin_memory": DEVICE == "cuda"}
        batches = iter(torch.utils.data.DataLoader(data, num_workers=workers, **options))

        def fetch() -> Any:
            with profkit.phase("data"):
                return [t.to(DEVICE, non_blocking=True) for t in next(batches)]

        return fetch

    return feed


def looked(make: Any, watch: bool) -> Any:
    """The same with every loss kept: as a number, or on the device."""

    def made(**sizes: Any) -> Any:
        model, inputs, loss_of = make(**sizes)
        seen: list[Any] = []

        def loss(*args: Any) -> Any:
            each = loss_of(*args)
            seen[:] = [one.item() if watch else one for one in each.detach().view(-1)]
            return each.mean()

        return model, inputs, loss

    return made


def emptied(build: Any) -> Any:
    def built() -> Any:
        run = build()

        def step() -> Any:
            loss = run()
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            return loss

        return step

    return built
