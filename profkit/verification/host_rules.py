"""What names of calls and ranges mean, written down a second time from the definitions (docs/numbers.md)."""

from __future__ import annotations

import re
from typing import Final

from profkit.verification.events import Span

__all__ = [
    "allocates",
    "blocks",
    "builds",
    "compiles",
    "fetches",
    "is_torch_frame",
    "launches",
    "library_domain",
    "loads",
    "named_by_library",
    "named_by_operator",
    "profiles",
    "sets_up",
]

_BLOCKING: Final = re.compile(
    r"(?:cuda(?:Device|Thread|Stream|Event)Synchronize|cu(?:Ctx|Stream|Event)Synchronize"
    r"|cudaMemcpy(?:2D|3D|ToSymbol|FromSymbol|Peer)?|cuMemcpy(?:DtoH|HtoD|Peer)?"
    r"|hip(?:Device|Stream|Event|Ctx)Synchronize|hipMemcpy(?:DtoH|HtoD|WithStream)?)(?:_.*)?",
    re.DOTALL,
)
_ALLOCATING: Final = re.compile(
    r"cudaMalloc|cudaFree|cudaHost(?:Alloc|Register|Unregister)|cuMem(?:Alloc|Free|HostAlloc|Create|Map|Unmap|Release)"
    r"|cuMem(?:SetAccess|AddressReserve|AddressFree)|hipMalloc|hipFree|hipHostMalloc|hipExtMalloc"
    r"|hipMem(?!cpy|set|GetInfo|Prefetch)"
)
_LOADING: Final = re.compile(
    r"cu(?:Module|Library)Load|cudaLibraryLoad|cu(?:ModuleGetFunction|LibraryGetKernel|ModuleUnload)"
    r"|hipModule(?:Load|GetFunction|Unload)"
)
_LAUNCHING: Final = re.compile(r"LaunchKernel|LaunchCooperativeKernel|GraphLaunch|ExtLaunch")
_PROFILING: Final = re.compile(r"cupti|roctracer|rocprofiler|.*Profiler", re.DOTALL)
_OTHER_WORK: Final = re.compile(r"Memcpy|MemPrefetch|GraphLaunch|Capture")
_BUILDING: Final = re.compile(r"cuLink|nvrtc|hiprtc|(?:cuda|cu|hip)GraphInstantiate")
_LIBRARIES: Final = re.compile(
    r"(?:nccl|gloo|mpi|ucc|hccl|xccl):|c10d::|Optimizer\.[^#]*#|(?:Distributed|FullySharded)?DataParallel\.|FSDP::"
    r"|enumerate\(DataLoader\)#|Torch-Compiled Region|(?:## )?Call CompiledFxGraph|CompiledFunction|Pregraph bytecode"
    r"|TorchDynamo Cache Lookup|(?:Iteration Start: )?PyTorch Profiler|.*\(dynamo_timed\)|\w+: (?:fn_name=[^,]*, )?compile_id=.*"
)
_OPERATORS: Final = re.compile(r"(?:aten|autograd|torch::autograd|prims|c10d|_c10d_functional)::")
_DOMAINS: Final = re.compile(
    r"CCCL|CUB|Thrust|NCCL|cu[A-Z]\w+|libcud\w+|NVSHMEM|TensorRT|DALI|RMM|RAPIDS\w*|UCX|MPI|PyTorch|torch\w*",
    re.IGNORECASE,
)
_LOADER: Final = re.compile(r"enumerate\(DataLoader\)#.*\.__next__")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+")
_TORCH: Final = re.compile(r"<built-in |nn\.Module: |(?:.{0,1000}[/\\])?torch[/\\][^(]{0,200}\(\d{1,9}\): ")
_LONGEST: Final = 200


def blocks(call: str) -> bool:
    """A call that returns when the device has reached a point."""
    return _BLOCKING.fullmatch(call) is not None


def allocates(call: str) -> bool:
    """A call that asks the driver for memory or gives it back."""
    return _ALLOCATING.match(call) is not None


def loads(call: str) -> bool:
    """A call that loads code."""
    return _LOADING.match(call) is not None


def launches(call: str) -> bool:
    """A call that launches kernels or graphs."""
    return _LAUNCHING.search(call) is not None


def profiles(call: str) -> bool:
    """A call of a profiler."""
    return _PROFILING.match(call) is not None


def builds(call: str) -> bool:
    """A call that compiles or instantiates."""
    return _BUILDING.match(call) is not None


def sets_up(call: str) -> bool:
    """A call that, if it is long, can only be the setting up of the device."""
    return not (blocks(call) or allocates(call) or profiles(call) or _OTHER_WORK.search(call))


def compiles(span: Span) -> bool:
    """A range of compilation."""
    return span.kind != "python" and (span.name.endswith("(dynamo_timed)") or "Driver Compiler" in span.name)


def named_by_library(name: str) -> bool:
    """A mark that torch or a communication library makes."""
    return _LIBRARIES.match(name) is not None


def named_by_operator(name: str) -> bool:
    """A name in a namespace of operators."""
    return _OPERATORS.match(name) is not None


def library_domain(domain: str | None) -> bool:
    """An NVTX domain of a library."""
    return domain is not None and _DOMAINS.match(domain) is not None


def is_torch_frame(name: str) -> bool:
    """A Python frame of torch or of the interpreter."""
    return _TORCH.match(name) is not None


def fetches(name: str) -> bool:
    """A range in which data is fetched or prepared."""
    if _LOADER.fullmatch(name):
        return True
    if len(name) > _LONGEST or named_by_library(name) or named_by_operator(name):
        return False
    words = {word.lower() for word in _WORD.findall(name)}
    if words & {"dataloader", "dataloading", "loader", "collate", "tokenize", "fetch"}:
        return True
    verbs = {"get", "load", "loading", "next", "fetch", "fetching", "read", "prepare"}
    if words & {"data", "input", "inputs", "batch"} and words & verbs:
        return True
    return re.split(r"[/.]", name)[-1].strip().lower() in ("data", "input", "inputs")
