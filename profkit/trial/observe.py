"""What a program's steps are made of, seen while it warms up."""

from __future__ import annotations

import gc
import os
from typing import Any

from profkit.recording.program_events import Kind
from profkit.trial.messages import Facts, LoaderFacts, OptimizerFacts

__all__ = ["Observer"]


class Observer:
    """Hears the first steps, and then nothing, so that a timed step costs what it costs."""

    kinds: tuple[Kind, ...] = (Kind.MODULE, Kind.OPTIMIZER, Kind.LOADER)

    def __init__(self) -> None:
        self._depth = 0
        self._models: dict[int, Any] = {}
        self._optimizers: dict[int, Any] = {}
        self._loaders: dict[int, LoaderFacts] = {}
        self._autocast = False

    def entered(self, kind: Kind, subject: Any) -> None:
        """Something runs."""
        if kind is Kind.OPTIMIZER:
            self._optimizers[id(subject)] = subject
        elif kind is Kind.LOADER:
            self._loaders[id(subject._index_sampler)] = _loader(subject)
        else:
            self._depth += 1
            if self._depth == 1:
                self._models[id(subject)] = subject
            self._autocast |= _autocasts()

    def left(self, kind: Kind, subject: Any, values: Any) -> None:
        """And is done."""
        if kind is Kind.MODULE:
            self._depth = max(0, self._depth - 1)

    def facts(self) -> Facts:
        """What was seen; nothing of the program is kept."""
        import torch

        models = [each for each in self._models.values() if any(True for _ in each.parameters())]
        modules = [module for model in models for module in model.modules()]
        weights = [weight for model in models for weight in model.parameters()]
        images = [weight for weight in weights if weight.dim() == 4]
        optimizers = [_optimizer(each) for each in self._optimizers.values()]
        loaders = list(self._loaders.values())
        self._models, self._optimizers = {}, {}
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        return Facts(
            cuda=cuda,
            capability=torch.cuda.get_device_capability() if cuda else None,
            cpu_bf16=_cpu_bf16(),
            cpus=len(os.sched_getaffinity(0)),
            threads=torch.get_num_threads(),
            host_free_bytes=os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            gpu_free_bytes=torch.cuda.mem_get_info()[0] if cuda else None,
            modules=len(models),
            layers=len(modules),
            convolutions=sum(isinstance(each, torch.nn.Conv2d) for each in modules),
            channels_last=bool(images)
            and all(each.is_contiguous(memory_format=torch.channels_last) for each in images),
            compiled=any(_is_compiled(each) for each in modules),
            autocast=self._autocast,
            half=bool(weights) and all(each.dtype in (torch.bfloat16, torch.float16) for each in weights),
            tf32=torch.get_float32_matmul_precision() != "highest",
            cudnn_benchmark=torch.backends.cudnn.benchmark,
            collects=gc.isenabled(),
            slow_attention=any(_attends_slowly(each) for each in modules),
            optimizers=optimizers,
            loaders=loaders,
        )


def _autocasts() -> bool:
    import torch

    return bool(torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"))


def _cpu_bf16() -> bool:
    import torch

    return bool(torch.cpu._is_avx512_bf16_supported()) or bool(torch.cpu._is_amx_tile_supported())


def _is_compiled(module: Any) -> bool:
    return module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule"


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
    )
