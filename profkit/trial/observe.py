"""What a program's steps are made of, seen while it warms up."""

from __future__ import annotations

import contextlib
import gc
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from profkit.recording.program_events import Kind, listen, unlisten
from profkit.trial.changes.wrapping import is_compiled, replace
from profkit.trial.messages import Facts, LoaderFacts, OptimizerFacts
from profkit.trial.objects import models

__all__ = ["Observer", "free_bytes_of_host"]

_MEMORY: Final = Path("/proc/meminfo")


class Observer:
    """Hears the first steps, and then nothing, so that a timed step costs what it costs.

    Of modules it hears nothing: a program that is compiled while torch has global hooks is compiled again without them.
    """

    kinds: tuple[Kind, ...] = (Kind.OPTIMIZER, Kind.LOADER)

    def __init__(self) -> None:
        self._undo = ExitStack()
        self._optimizers: dict[int, Any] = {}
        self._loaders: dict[int, LoaderFacts] = {}
        self._autocast = self._zeroed = False

    def listen(self) -> None:
        """Hear from now on."""
        import torch

        def entering(original: Any) -> Any:
            def __enter__(region: Any) -> Any:
                self._autocast |= bool(region._enabled)
                return original(region)

            return __enter__

        def zeroing(original: Any) -> Any:
            def zero_grad(owner: Any, set_to_none: bool = True) -> Any:
                self._zeroed |= not set_to_none
                return original(owner, set_to_none)

            return zero_grad

        replace(self._undo, torch.autocast, "__enter__", entering)
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            replace(self._undo, owner, "zero_grad", zeroing)
        listen(self)
        self._undo.callback(unlisten, self)

    def entered(self, kind: Kind, subject: Any) -> None:
        """Something runs."""
        if kind is Kind.OPTIMIZER:
            self._optimizers[id(subject)] = subject
        else:
            self._loaders[id(subject._index_sampler)] = _loader(subject)

    def left(self, kind: Kind, subject: Any, values: Any) -> None:
        """And is done."""

    def facts(self) -> Facts:
        """What was seen, and nothing more from now on; nothing of the program is kept."""
        import torch

        self._undo.close()
        found = models()
        modules = [module for model in found for module in model.modules()]
        weights = [weight for model in found for weight in model.parameters()]
        images = [weight for weight in weights if weight.dim() == 4]
        used = [_optimizer(each) for each in self._optimizers.values()]
        loaders = list(self._loaders.values())
        self._optimizers = {}
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        return Facts(
            cuda=cuda,
            capability=torch.cuda.get_device_capability() if cuda else None,
            cpu_bf16=_cpu_bf16(),
            cpus=len(os.sched_getaffinity(0)),
            threads=torch.get_num_threads(),
            host_free_bytes=free_bytes_of_host(),
            gpu_free_bytes=torch.cuda.mem_get_info()[0] if cuda else None,
            modules=len(found),
            layers=len(modules),
            convolutions=sum(isinstance(each, torch.nn.Conv2d) for each in modules),
            channels_last=bool(images)
            and all(each.is_contiguous(memory_format=torch.channels_last) for each in images),
            compiled=any(is_compiled(each) for each in modules),
            autocast=self._autocast,
            half=bool(weights) and all(each.dtype in (torch.bfloat16, torch.float16) for each in weights),
            tf32=torch.get_float32_matmul_precision() != "highest",
            cudnn_benchmark=torch.backends.cudnn.benchmark,
            collects=gc.isenabled(),
            zeroed=self._zeroed,
            slow_attention=any(_attends_slowly(each) for each in modules),
            optimizers=used,
            loaders=loaders,
        )


def free_bytes_of_host() -> int:
    """Memory that nobody holds: what only caches files makes way."""
    with contextlib.suppress(OSError):  # not Linux
        for line in _MEMORY.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cpu_bf16() -> bool:
    import torch

    return bool(torch.cpu._is_avx512_bf16_supported()) or bool(torch.cpu._is_amx_tile_supported())


def _attends_slowly(module: Any) -> bool:
    eager = getattr(getattr(module, "config", None), "_attn_implementation", None) == "eager"
    return eager and hasattr(module, "set_attn_implementation")


def _optimizer(optimizer: Any) -> OptimizerFacts:
    group = optimizer.param_groups[0]
    on_gpu = all(each.is_cuda for each in group["params"])
    fused = bool(group.get("fused"))
    foreach = group.get("foreach")
    return OptimizerFacts(
        name=type(optimizer).__name__,
        fused=fused,
        foreach=bool(foreach) or (foreach is None and on_gpu and not fused),
        can_fuse="fused" in group,
        can_foreach="foreach" in group,
    )


def _loader(iterator: Any) -> LoaderFacts:
    from torch.utils.data.dataloader import _DatasetKind

    return LoaderFacts(
        workers=iterator._num_workers,
        pinned=bool(iterator._pin_memory),
        iterable=iterator._dataset_kind == _DatasetKind.Iterable,
        ahead=iterator._num_workers * (getattr(iterator, "_prefetch_factor", None) or 0),
    )
