"""`phase`: one mark that reaches NVTX, torch.profiler and the memory history.

While nothing records, a phase is a check and nothing more. While something records, it opens

- a range of the NVTX domain ``profkit``, if an NVTX tool (Nsight Systems, Nsight Compute) is attached;
- a ``record_function`` annotation whose name carries `PHASE_MARK`, for torch.profiler and for a memory
  history that was started with ``global_record_annotations=True``.

A plain call is a push and a pop on one thread. Generators and coroutines are suspended with the phase open,
and other code runs on the thread meanwhile. So their NVTX range is a start/end range from the first resume to
the end; their annotation, which belongs to a thread, is opened at each resume and closed at each suspension.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import zlib
from collections.abc import AsyncGenerator, Callable, Generator
from types import CodeType
from typing import Any, Final, ParamSpec, TypeVar, overload

from profkit.errors import RecordingError
from profkit.marks import PHASE_MARK
from profkit.recording.notices import warn
from profkit.recording.nvtx_domain import attached_domain

__all__ = ["Phase", "close_range", "collect", "nvtx_attached", "open_range", "phase", "recording"]

P = ParamSpec("P")
R = TypeVar("R")
Opened = tuple[Any, Any, Any]
"""What is open: (pops a push/pop range, handle of a start/end range, record_function); each may be None."""

_COLOURS: Final = {
    "forward": 0x2F6FDE,
    "backward": 0xD9663A,
    "optimizer": 0x3C9D5D,
    "loss": 0x8A5CD1,
    "data": 0xC9A227,
}
_PALETTE: Final = (0x4C78A8, 0xF58518, 0x54A24B, 0xE45756, 0x72B7B2, 0xB279A2, 0xFF9DA6, 0x9D755D, 0xBAB0AC)

_SUSPENDABLE: Final = (
    inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
)


class _NoTorch:
    """Stands for ``torch.autograd.profiler`` until the program has imported it."""

    @property
    def _is_profiler_enabled(self) -> bool:
        return "torch" in sys.modules and _find_torch()


_profiler: Any = _NoTorch()
_history_on = False
"""Whether the CUDA memory history is on. Asking torch costs up to 1.2 us, so `_history_switch` listens."""
_record_function: Any = None
_tracing_context: Callable[[], Any] = bool
_domain: Any = None
"""The NVTX domain while a tool is attached; a tool attaches when the process starts or never."""
_seen: set[str] | None = None
"""Where `profkit.record` collects the names of the phases that were recorded."""
_warned = False


def recording() -> bool:
    """Whether anything records phases now: an NVTX tool, torch.profiler or the memory history."""
    if _domain is not None or _profiler._is_profiler_enabled or _history_on:
        return not _tracing()
    return False


# torch.compile runs this function once, when it traces the caller, and takes its answer (False, because of
# `_tracing`) as a constant: a phase within a compiled function costs nothing and breaks no graph.
recording._dynamo_marked_constant = True  # type: ignore[attr-defined]


class Phase:
    """A named stretch of a program: a context manager, and a decorator of every kind of function.

    One object may be used many times, by many threads and recursively. Made by `phase`.

    Attributes:
        name: What the phase is called in the recordings.
        attributes: What else is written where the format allows it.
    """

    __slots__ = ("_open", "attributes", "name")

    def __init__(self, name: str | None, attributes: dict[str, Any]) -> None:
        self.name = name
        self.attributes = attributes
        self._open: list[tuple[int, Opened | None]] | None = None

    def __enter__(self) -> Phase:
        if recording():
            frame = sys._getframe(1)
            spans = frame.f_code.co_flags & _SUSPENDABLE
            name = self.name or frame.f_code.co_name
            opened = _open(name, self.attributes, nested=not spans)
            self._remember((id(frame) if spans else threading.get_ident(), opened))
        elif self._open:
            # The recording ended within an open use of this object: keep its exits in step with its entries.
            self._remember((_use(sys._getframe(1)), None))
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._open:
            use = _use(sys._getframe(1))
            for index in range(len(self._open) - 1, -1, -1):
                if self._open[index][0] == use:
                    opened = self._open.pop(index)[1]
                    if opened is not None:
                        _close(opened)
                    return

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function, method, generator, coroutine or asynchronous generator."""
        wrapper: Callable[P, R] = _decorate(function, self.name, self.attributes)
        return wrapper

    def __repr__(self) -> str:
        return f"profkit.phase({self.name!r})"

    def _remember(self, use: tuple[int, Opened | None]) -> None:
        if self._open is None:
            self._open = []
        self._open.append(use)


@overload
def phase(name: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def phase(name: str | None = None, /, **attributes: Any) -> Phase: ...
def phase(name: Any = None, /, **attributes: Any) -> Any:
    """Name a stretch of a program: a decorator and a context manager.

    Write ``@phase("forward")``, ``@phase`` (named after the function) or ``with phase("forward"):``.

    Args:
        name: What to call it; left out, the name of the function.
        attributes: Values to keep with it: in torch annotations as text ``key=value``, in NVTX the first
            number as the payload.

    Raises:
        RecordingError: Something that is neither a name nor a function was given.
    """
    if name is None or isinstance(name, str):
        return Phase(name, attributes)
    return _decorate(name, None, attributes)


def collect(names: set[str] | None) -> None:
    """Add the names of recorded phases to ``names`` from now on; None ends that."""
    global _seen
    _seen = names


def open_range(name: str) -> Opened:
    """Open a push/pop range of the NVTX domain only: a step, which torch.profiler marks by itself."""
    return (_push(name, {}), None, None)


def close_range(opened: Opened) -> None:
    """Close what `open_range` opened."""
    _close(opened)


def nvtx_attached() -> bool:
    """Whether an NVTX tool listens to this process."""
    return _domain is not None


def _decorate(function: Any, name: str | None, attributes: dict[str, Any]) -> Any:
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(_decorate(function.__func__, name, attributes))
    if isinstance(function, type) or not callable(function):
        kind = "a class" if isinstance(function, type) else repr(function)
        raise RecordingError(
            "profkit.phase", f"cannot mark {kind}", "Give it a name (a str), or decorate a function or method"
        )
    recording()  # finds torch early, so that the switch of its memory history is heard
    if name is None:
        name = getattr(function, "__name__", None) or type(function).__name__
    if inspect.isasyncgenfunction(function):
        wrapper: Any = _async_generator(function, name, attributes)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine(function, name, attributes)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(function, name, attributes)
    else:
        wrapper = _function(function, name, attributes)
    return functools.wraps(function)(wrapper)


def _function(function: Any, name: str, attributes: dict[str, Any]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        if not recording():
            return function(*args, **kwargs)
        opened = _open(name, attributes)
        try:
            return function(*args, **kwargs)
        finally:
            _close(opened)

    return call


def _generator(function: Any, name: str, attributes: dict[str, Any]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from _drive(function(*args, **kwargs), name, attributes))

    return call


def _coroutine(function: Any, name: str, attributes: dict[str, Any]) -> Any:
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await _Driven(function(*args, **kwargs), name, attributes)

    return call


def _async_generator(function: Any, name: str, attributes: dict[str, Any]) -> Any:
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        source = function(*args, **kwargs)
        resume, argument = source.asend, None
        span = _start(name, attributes)
        try:
            while True:
                try:
                    item = await _Driven(resume(argument), name, attributes, spanned=True)
                except StopAsyncIteration:
                    return
                try:
                    resume, argument = source.asend, (yield item)
                except GeneratorExit:
                    await source.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - whatever was thrown in is for the source
                    resume, argument = source.athrow, error
        finally:
            _close((None, span, None))

    return call


class _Driven:
    """An awaitable that runs another one, with the phase open while it runs."""

    __slots__ = ("attributes", "awaitable", "name", "spanned")

    def __init__(
        self, awaitable: Any, name: str, attributes: dict[str, Any], *, spanned: bool = False
    ) -> None:
        self.awaitable = awaitable
        self.name = name
        self.attributes = attributes
        self.spanned = spanned

    def __await__(self) -> Generator[Any, Any, Any]:
        return _drive(self.awaitable, self.name, self.attributes, spanned=self.spanned)


def _drive(
    source: Any, name: str, attributes: dict[str, Any], *, spanned: bool = False
) -> Generator[Any, Any, Any]:
    """Run a generator or coroutine as ``yield from`` would, with the phase open while it runs (PEP 380)."""
    resume, argument = source.send, None
    span = None if spanned else _start(name, attributes)
    try:
        while True:
            annotation = _annotate(name, attributes) if recording() else None
            try:
                item = resume(argument)
            except StopIteration as stop:
                return stop.value
            finally:
                _close((None, None, annotation))
            try:
                resume, argument = source.send, (yield item)
            except GeneratorExit:
                source.close()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever was thrown in is for the source
                resume, argument = source.throw, error
    finally:
        _close((None, span, None))


def _open(name: str, attributes: dict[str, Any], *, nested: bool = True) -> Opened:
    pop = _push(name, attributes) if nested else None
    span = None if nested else _start(name, attributes)
    return pop, span, _annotate(name, attributes)


def _close(opened: Opened) -> None:
    pop, span, annotation = opened
    try:
        if annotation is not None:
            annotation.__exit__(None, None, None)
        if pop is not None:
            pop()
        if span is not None:
            _domain.end_range(span)
    except Exception as error:  # noqa: BLE001 - a recording never takes the program down
        _warn(error)


def _push(name: str, attributes: dict[str, Any]) -> Any:
    if _domain is None:
        return None
    try:
        _domain.push_range(_event(name, _payload(attributes)))
    except Exception as error:  # noqa: BLE001 - a recording never takes the program down
        _warn(error)
        return None
    return _domain.pop_range


def _start(name: str, attributes: dict[str, Any]) -> Any:
    if _domain is None:
        return None
    try:
        return _domain.start_range(_event(name, _payload(attributes)))
    except Exception as error:  # noqa: BLE001 - a recording never takes the program down
        _warn(error)
        return None


def _annotate(name: str, attributes: dict[str, Any]) -> Any:
    """The open torch annotation, or None where torch does not record."""
    if _seen is not None:
        _seen.add(name)
    if not (_profiler._is_profiler_enabled or _history_on) or _emits_nvtx():
        return None
    text = ", ".join(f"{key}={value}" for key, value in attributes.items()) if attributes else None
    try:
        return _record_function(PHASE_MARK + name, text).__enter__()
    except Exception as error:  # noqa: BLE001 - a recording never takes the program down
        _warn(error)
        return None


def _use(frame: Any) -> int:
    """Whose entry an exit belongs to: a suspendable function's own, else the thread's last."""
    code: CodeType = frame.f_code
    return id(frame) if code.co_flags & _SUSPENDABLE else threading.get_ident()


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
    if _record_function is None and not _find_torch() and _record_function is None:
        return False
    torch = sys.modules["torch"]
    return bool(_tracing_context() is not None or torch.compiler.is_compiling() or torch._C._is_tracing())


def _emits_nvtx() -> bool:
    """Whether torch.profiler itself writes NVTX (``emit_nvtx``), where the phase has its range already."""
    if _domain is None:
        return False
    torch = sys.modules["torch"]
    return bool(torch._C._autograd._profiler_type() == torch._C._profiler.ActiveProfilerType.NVTX)


def _find_torch() -> bool:
    """Bind torch once the program has imported it; whether torch.profiler is active."""
    global _profiler, _history_on, _record_function, _tracing_context
    torch = sys.modules.get("torch")
    found = sys.modules.get("torch.autograd.profiler")
    if torch is None or not hasattr(torch, "compiler") or not hasattr(found, "_is_profiler_enabled"):
        return False  # not imported, or being imported now
    _profiler = found
    _record_function = _profiler.record_function
    local = getattr(torch._guards, "_TLS", None)  # what try_get() reads, eight times slower
    read = functools.partial(getattr, local, "tracing_context", None)
    _tracing_context = torch._guards.TracingContext.try_get if local is None else read
    for name in ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, _history_switch(getattr(torch._C, name)))
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
    collect(None)


def _warn(problem: object) -> None:
    global _warned
    if not _warned:
        _warned = True
        warn(f"phases are incomplete: {problem}")


_domain = attached_domain()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_recordings)
