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

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from types import CodeType
from typing import Any, Final, ParamSpec, TypeVar, overload

from profkit.errors import RecordingError
from profkit.recording import backends
from profkit.recording.backends import (
    NOTHING_OPEN,
    Opened,
    close_marks,
    open_annotation,
    open_marks,
    recording,
    start_span,
)

__all__ = ["Phase", "phase"]

P = ParamSpec("P")
R = TypeVar("R")
_SUSPENDABLE: Final = (
    inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
)


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
            opened = open_marks(name, self.attributes, nested=not spans)
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
                        close_marks(opened)
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
            number as the payload. ``flop`` and ``bytes`` say what the phase's kernels do, for their roofline:
            those of a kernel of your own, of which profkit knows no formula.

    Raises:
        RecordingError: Something that is neither a name nor a function was given.
    """
    if name is None or isinstance(name, str):
        if backends.old_compiler and backends.tracing():
            return contextlib.nullcontext()
        return Phase(name, attributes)
    return _decorate(name, None, attributes)


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
        opened = open_marks(name, attributes)
        try:
            return function(*args, **kwargs)
        finally:
            close_marks(opened)

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
        span = start_span(name, attributes)
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
            close_marks((None, span, None, None))

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
    span = None if spanned else start_span(name, attributes)
    try:
        while True:
            opened = open_annotation(name, attributes) if recording() else NOTHING_OPEN
            try:
                item = resume(argument)
            except StopIteration as stop:
                return stop.value
            finally:
                close_marks(opened)
            try:
                resume, argument = source.send, (yield item)
            except GeneratorExit:
                source.close()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever was thrown in is for the source
                resume, argument = source.throw, error
    finally:
        close_marks((None, span, None, None))


def _teach_compiler() -> None:
    """Let torch.compile take a phase object that was made outside of the compiled code for nothing."""
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.variables.builder import VariableBuilder
    from torch._dynamo.variables.ctx_manager import NullContextVariable

    def nothing(builder: Any, value: Any) -> Any:
        builder.install_guards(GuardBuilder.TYPE_MATCH)
        return NullContextVariable(source=builder.source)

    VariableBuilder._type_dispatch()[Phase] = nothing


backends.before_compiling(_teach_compiler)


def _use(frame: Any) -> int:
    """Whose entry an exit belongs to: a suspendable function's own, else the thread's last."""
    code: CodeType = frame.f_code
    return id(frame) if code.co_flags & _SUSPENDABLE else threading.get_ident()
