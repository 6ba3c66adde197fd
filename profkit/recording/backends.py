"""What a phase opens while something records: a range of the NVTX domain, and a torch annotation.

Whether something records is asked at every phase, so the question is a few global names and no call into torch.
"""

from __future__ import annotations

import functools
import os
import sys
import zlib
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from profkit.model.marks import PHASE_MARK, WORK_MARK
from profkit.recording.notices import warn
from profkit.recording.nvtx_domain import attached_domain

__all__ = [
    "NOTHING_OPEN",
    "Follower",
    "Opened",
    "before_compiling",
    "close_marks",
    "follow",
    "nvtx_attached",
    "open_annotation",
    "open_marks",
    "open_range",
    "recording",
    "start_span",
    "warm_up",
]

R = TypeVar("R")
Opened = tuple[Any, Any, Any, "Follower | None"]
"""What is open: (pops a push/pop range, handle of a start/end range, torch's annotation, who hears of its end)."""

NOTHING_OPEN: Final[Opened] = (None, None, None, None)

_COLOURS: Final = {
    "forward": 0x2F6FDE,
    "backward": 0xD9663A,
    "optimizer": 0x3C9D5D,
    "loss": 0x8A5CD1,
    "data": 0xC9A227,
}
_PALETTE: Final = (0x4C78A8, 0xF58518, 0x54A24B, 0xE45756, 0x72B7B2, 0xB279A2, 0xFF9DA6, 0x9D755D, 0xBAB0AC)


class Follower(Protocol):
    """Hears of the phases that are recorded."""

    def phase_opened(self, name: str) -> None:
        """A phase begins; it is not open yet."""

    def phase_closed(self) -> None:
        """A phase has ended."""


class _NoTorch:
    """Stands for ``torch.autograd.profiler`` until the program has imported it."""

    @property
    def _is_profiler_enabled(self) -> bool:
        return "torch" in sys.modules and _find_torch()


_profiler: Any = _NoTorch()
_history_on = False
"""Whether the CUDA memory history is on. Asking torch costs up to 1.2 us, so `_history_switch` listens."""
_warming_up = False
"""Whether a profiler warms up, so that a recording hears of phases that nothing records yet."""
_tracing_context: Callable[[], Any] = bool
_domain: Any = None
"""The NVTX domain while a tool is attached; a tool attaches when the process starts or never."""
old_compiler = False
"""Whether torch.compile knows no context manager but its own ones (before torch 2.5)."""
_prepare_compiler: Callable[[], object] = bool
_follower: Follower | None = None
"""The `profkit.record` that runs."""
_warned = False
_WORK: Final = ("flop", "bytes")
"""Attributes of a phase that say what its kernels do."""


def recording() -> bool:
    """Whether anything records phases now, or is about to: an NVTX tool, torch.profiler or the memory history."""
    if _domain is not None or _profiler._is_profiler_enabled or _history_on or _warming_up:
        return not _tracing()
    return False


# torch.compile runs this function once, when it traces the caller, and takes its answer (False, because of
# `_tracing`) as a constant: a phase within a compiled function costs nothing and breaks no graph.
recording._dynamo_marked_constant = True  # type: ignore[attr-defined]


def tracing() -> bool:
    """Whether torch traces the program; torch.compile takes the answer as a constant."""
    return _tracing()


tracing._dynamo_marked_constant = True  # type: ignore[attr-defined]


def before_compiling(prepare: Callable[[], object]) -> None:
    """Call ``prepare`` once before the program's first ``torch.compile``."""
    global _prepare_compiler
    _prepare_compiler = prepare


def _compile(original: Callable[..., R]) -> Callable[..., R]:
    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> R:
        members = vars(sys.modules["torch"])
        if members["compile"] is compile:
            members["compile"] = original
        try:
            _prepare_compiler()
        except Exception as error:  # noqa: BLE001 - a torch whose compiler is built otherwise
            _warn(error)
        return original(*args, **kwargs)

    return compile


def follow(follower: Follower | None) -> None:
    """Tell ``follower`` of the phases that are recorded from now on; None ends that."""
    global _follower
    _follower = follower
    warm_up(on=False)


def warm_up(*, on: bool) -> None:
    """Let the follower hear of phases while its profiler warms up."""
    global _warming_up
    _warming_up = on


def open_range(name: str) -> Opened:
    """Open a push/pop range of the NVTX domain only: a step, which torch.profiler marks by itself."""
    return (_push(name, {}), None, None, None)


def nvtx_attached() -> bool:
    """Whether an NVTX tool listens to this process."""
    return _domain is not None


def open_marks(name: str, attributes: dict[str, Any], *, nested: bool = True) -> Opened:
    """Open everything that listens; ``nested`` code is not suspended, so its NVTX range is pushed and popped."""
    follower = _tell_opened(name)
    pop = _push(name, attributes) if nested else None
    span = None if nested else start_span(name, attributes)
    return pop, span, _annotate(name, attributes), follower


def open_annotation(name: str, attributes: dict[str, Any]) -> Opened:
    """Open torch's annotation only: suspended code has its NVTX range from `start_span`."""
    follower = _tell_opened(name)
    return None, None, _annotate(name, attributes), follower


def close_marks(opened: Opened) -> None:
    """Close what is open, the last first."""
    pop, span, annotation, follower = opened
    try:
        if annotation is not None:
            _, leave, without_overrides = _operators()
            with without_overrides():
                leave(annotation)
        if pop is not None:
            pop()
        if span is not None:
            _domain.end_range(span)
        if follower is not None:
            follower.phase_closed()
    except Exception as error:  # noqa: BLE001 - a recording never takes the program down
        _warn(error)


def _tell_opened(name: str) -> Follower | None:
    if _follower is not None:
        _follower.phase_opened(name)
    return _follower


def _push(name: str, attributes: dict[str, Any]) -> Any:
    if _domain is None:
        return None
    try:
        _domain.push_range(_event(name, _payload(attributes)))
        if work := _work(attributes):
            _domain.push_range(_event(work, None))
            _domain.pop_range()
    except Exception as error:  # noqa: BLE001 - a recording never takes the program down
        _warn(error)
        return None
    return _domain.pop_range


def start_span(name: str, attributes: dict[str, Any]) -> Any:
    """Start an NVTX range that belongs to no thread's stack; its handle, or None without a tool."""
    if _domain is None:
        return None
    try:
        return _domain.start_range(_event(name, _payload(attributes)))
    except Exception as error:  # noqa: BLE001 - a recording never takes the program down
        _warn(error)
        return None


def _annotate(name: str, attributes: dict[str, Any]) -> Any:
    """The open torch annotation, or None where torch does not record."""
    if not (_profiler._is_profiler_enabled or _history_on) or _emits_nvtx():
        return None
    try:
        text = ", ".join(f"{key}={value}" for key, value in attributes.items()) if attributes else None
        enter, leave, without_overrides = _operators()
        opened = enter(PHASE_MARK + name, text)
        if work := _work(attributes):
            # Torch writes no arguments of an annotation into its trace: an empty one inside carries them.
            with without_overrides():
                leave(enter(work, None))
        return opened
    except Exception as error:  # noqa: BLE001 - a recording never takes the program down
        _warn(error)
        return None


def _work(attributes: dict[str, Any]) -> str | None:
    """What an empty mark inside a phase is called that says its work; None where it declares none."""
    told = [f"{key}={int(attributes[key])}" for key in _WORK if key in attributes]
    return WORK_MARK + " ".join(told) if told else None


@functools.lru_cache(maxsize=1)
def _operators() -> tuple[Any, Any, Any]:
    """What ``record_function`` itself calls; its Python takes a third of its time."""
    torch = sys.modules["torch"]
    operators = torch.ops.profiler
    return (
        operators._record_function_enter_new.default,
        operators._record_function_exit._RecordFunction,
        torch._C.DisableTorchFunctionSubclass,
    )


@functools.lru_cache(maxsize=4096)
def _event(name: str, payload: float | None) -> Any:
    colour = _COLOURS.get(name) or _PALETTE[zlib.crc32(name.encode()) % len(_PALETTE)]
    return _domain.get_event_attributes(message=name, color=colour, payload=payload)


def _payload(attributes: dict[str, Any]) -> float | None:
    for value in attributes.values():
        if type(value) in (int, float):
            return value  # type: ignore[no-any-return]
    return None


def _tracing() -> bool:
    """Whether torch traces the program instead of running it: no annotation may enter its graph."""
    if isinstance(_profiler, _NoTorch):
        _find_torch()
    torch = sys.modules.get("torch")
    if torch is None or isinstance(_profiler, _NoTorch):
        return False
    return bool(_tracing_context() is not None or torch.compiler.is_compiling() or torch._C._is_tracing())


def _emits_nvtx() -> bool:
    """Whether torch.profiler itself writes NVTX (``emit_nvtx``), where the phase has its range already."""
    if _domain is None:
        return False
    torch = sys.modules["torch"]
    return bool(torch._C._autograd._profiler_type() == torch._C._profiler.ActiveProfilerType.NVTX)


def _find_torch() -> bool:
    """Bind torch once the program has imported it; whether torch.profiler is active."""
    global _profiler, _history_on, _tracing_context, old_compiler
    torch = sys.modules.get("torch")
    found = sys.modules.get("torch.autograd.profiler")
    if torch is None or not hasattr(torch, "compiler") or not hasattr(found, "_is_profiler_enabled"):
        return False  # not imported, or being imported now
    _profiler = found
    old_compiler = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5)
    local = getattr(torch._guards, "_TLS", None)  # what try_get() reads, eight times slower
    read = functools.partial(getattr, local, "tracing_context", None)
    _tracing_context = torch._guards.TracingContext.try_get if local is None else read
    for name in ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, _history_switch(getattr(torch._C, name)))
    if not old_compiler:
        vars(torch)["compile"] = _compile(vars(torch)["compile"])
    if torch.cuda.is_initialized() and hasattr(torch._C, "_cuda_isHistoryEnabled"):
        _history_on = torch._C._cuda_isHistoryEnabled()
    return bool(_profiler._is_profiler_enabled)


def _history_switch(switch: Callable[..., R]) -> Callable[..., R]:
    """Torch's own switch of the memory history, which all of its Python goes through, with a listener."""

    @functools.wraps(switch)
    def listened(enabled: Any, *args: Any, **kwargs: Any) -> R:
        global _history_on
        result = switch(enabled, *args, **kwargs)
        _history_on = bool(enabled)
        return result

    return listened


def _forget_recordings() -> None:
    """In a forked child CUDA cannot be asked for anything, and the recorder is the parent's."""
    global _history_on
    _history_on = False
    follow(None)


def _warn(problem: object) -> None:
    global _warned
    if not _warned:
        _warned = True
        warn(f"phases are incomplete: {problem}")


_domain = attached_domain()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_recordings)


if "torch" in sys.modules:
    _find_torch()
