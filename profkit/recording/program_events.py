"""What a program does, heard without an edit: through torch's global hooks, and a few functions that are wrapped.

Nothing is attached to the program's own models, optimizers and loaders, so they stay as picklable and copyable as they
were. Everything is taken off again when the last listener leaves.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol

from profkit.recording import backends
from profkit.recording.notices import warn

__all__ = ["Kind", "Listener", "calls_closure", "forget_listeners", "in_backward", "listen", "unlisten"]


class Kind(Enum):
    """A kind of stretch of a program; its subject is what does it."""

    RANGE = "range"
    """A ``record_function`` of anybody; the subject is the object."""
    BACKWARD = "backward"
    """A call of ``torch.autograd.backward``, without a subject."""
    OPTIMIZER = "optimizer"
    """A step of an optimizer. One that raises is not heard to end."""
    CLOSURE = "closure"
    """The closure that an optimizer's step calls, which is forward and backward and no part of the optimizer."""
    ZERO_GRAD = "zero_grad"
    """``zero_grad`` of an optimizer."""
    SCALED_STEP = "scaled step"
    """``GradScaler.step``, which may leave the optimizer's step out; the subject is the scaler."""
    SCALE_UPDATE = "scale update"
    """``GradScaler.update``; the subject is the scaler."""
    LOADER = "loader"
    """A fetch of one batch; the subject is the loader's iterator."""
    MODULE = "module"
    """The forward of a module, of whatever depth. Not heard within compiled code."""
    LOSS = "loss"
    """A loss function of ``torch.nn.functional``; the subject is the function."""
    EVALUATION = "evaluation"
    """An evaluation by Lightning or Transformers, where the program has imported it."""


class Listener(Protocol):
    """Hears of stretches. One that raises is told once and hears nothing more."""

    kinds: tuple[Kind, ...]

    def entered(self, kind: Kind, subject: Any) -> None:
        """A stretch begins."""

    def left(self, kind: Kind, subject: Any, values: Any) -> None:
        """A stretch ends; ``values`` are the inputs and the output of a module's forward, else None."""


_EVALUATIONS: Final = (
    ("lightning.pytorch.loops.evaluation_loop", "_EvaluationLoop", "run"),
    ("pytorch_lightning.loops.evaluation_loop", "_EvaluationLoop", "run"),
    ("transformers.trainer", "Trainer", "evaluate"),
)
"""Modules, classes and methods."""

_listeners: dict[Kind, tuple[Listener, ...]] = dict.fromkeys(Kind, ())
_undo: dict[Kind, Callable[[], object]] = {}
_with_closure: set[int] = set()


def listen(listener: Listener) -> None:
    """Let a listener hear from now on; the last one that came is the innermost."""
    for kind in listener.kinds:
        if not _listeners[kind]:
            _undo[kind] = _INSTALLERS[kind]()
        _listeners[kind] += (listener,)


def unlisten(listener: Listener) -> None:
    """Let a listener hear no more, in whatever order they came."""
    for kind in listener.kinds:
        if listener in _listeners[kind]:
            _listeners[kind] = tuple(each for each in _listeners[kind] if each is not listener)
            if not _listeners[kind]:
                _undo.pop(kind)()


def forget_listeners() -> None:
    """Let nobody hear any more: a forked child has its parent's listeners."""
    for listener in {id(each): each for listeners in _listeners.values() for each in listeners}.values():
        unlisten(listener)


def calls_closure(optimizer: Any) -> bool:
    """Whether the step that this optimizer makes, or made last, was given a closure."""
    return id(optimizer) in _with_closure


def in_backward() -> bool:
    """Whether this thread is within autograd's engine, where no profiler may start or stop."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


def _entered(kind: Kind, subject: Any) -> None:
    for listener in _listeners[kind]:
        try:
            listener.entered(kind, subject)
        except Exception as error:  # noqa: BLE001 - a recording never takes the program down
            _dismiss(listener, error)


def _left(kind: Kind, subject: Any, values: Any = None) -> None:
    for listener in reversed(_listeners[kind]):
        try:
            listener.left(kind, subject, values)
        except Exception as error:  # noqa: BLE001 - a recording never takes the program down
            _dismiss(listener, error)


def _dismiss(listener: Listener, error: Exception) -> None:
    unlisten(listener)
    warn(f"phases and steps are incomplete: {str(error) or type(error).__name__}")


def _hear_ranges() -> Callable[[], object]:
    from torch.autograd.profiler import record_function

    # The wrapped methods keep their source for TorchScript, which compiles this class from it.
    def entering(enter: Any) -> Any:
        def __enter__(self: Any) -> Any:
            _entered(Kind.RANGE, self)
            return enter(self)

        return __enter__

    def leaving(leave: Any) -> Any:
        def __exit__(self: Any, *error: Any) -> Any:
            try:
                return leave(self, *error)
            finally:
                _left(Kind.RANGE, self)

        return __exit__

    undo = [_replace(record_function, "__enter__", entering), _replace(record_function, "__exit__", leaving)]
    return lambda: [each() for each in undo]


def _hear_backward() -> Callable[[], object]:
    import torch

    return _replace(torch.autograd, "backward", lambda original: _calls(original, Kind.BACKWARD))


def _hear_optimizers() -> Callable[[], object]:
    from torch.optim import optimizer as optimizers

    def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
        closure = kwargs.get("closure") if "closure" in kwargs else (args[1] if len(args) > 1 else None)
        (_with_closure.add if callable(closure) else _with_closure.discard)(id(optimizer))
        _entered(Kind.OPTIMIZER, optimizer)
        if not callable(closure):
            return None
        outside = _calls(closure, Kind.CLOSURE, optimizer)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": outside}
        return (args[0], outside, *args[2:]), kwargs

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        _left(Kind.OPTIMIZER, optimizer)

    hooks = (
        optimizers.register_optimizer_step_pre_hook(before),
        optimizers.register_optimizer_step_post_hook(after),
    )
    return lambda: [hook.remove() for hook in hooks]


def _hear_zero_grad() -> Callable[[], object]:
    import torch

    return _hear_method(torch.optim.Optimizer, "zero_grad", Kind.ZERO_GRAD)


def _hear_scaled_steps() -> Callable[[], object]:
    import torch

    return _hear_method(torch.amp.GradScaler, "step", Kind.SCALED_STEP)


def _hear_scale_updates() -> Callable[[], object]:
    import torch

    return _hear_method(torch.amp.GradScaler, "update", Kind.SCALE_UPDATE)


def _hear_method(owner: type, name: str, kind: Kind) -> Callable[[], object]:
    def around(original: Any) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            _entered(kind, self)
            try:
                return original(self, *args, **kwargs)
            finally:
                _left(kind, self)

        return method

    return _replace(owner, name, around)


def _hear_loaders() -> Callable[[], object]:
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    def around(original: Any) -> Any:
        def __next__(self: Any) -> Any:
            _entered(Kind.LOADER, self)
            try:
                return original(self)
            finally:
                _left(Kind.LOADER, self)

        return __next__

    return _replace(_BaseDataLoaderIter, "__next__", around)


def _hear_modules() -> Callable[[], object]:
    from torch.nn.modules import module as modules

    def before(module: Any, inputs: Any) -> None:
        if not backends.tracing():
            _entered(Kind.MODULE, module)

    def after(module: Any, inputs: Any, output: Any) -> None:
        if not backends.tracing():
            _left(Kind.MODULE, module, (inputs, output))

    hooks = (
        modules.register_module_forward_pre_hook(before),
        modules.register_module_forward_hook(after, always_call=True),
    )
    # A compiled module warns of global hooks, which a recorder's user cannot take away.
    warnings.filterwarnings(
        "ignore", message=".*when there are global hooks on modules", category=UserWarning
    )
    return lambda: [hook.remove() for hook in hooks]


def _hear_losses() -> Callable[[], object]:
    from torch.nn import functional

    def around(original: Any) -> Any:
        def loss(*args: Any, **kwargs: Any) -> Any:
            if backends.tracing():
                return original(*args, **kwargs)
            _entered(Kind.LOSS, original)
            try:
                return original(*args, **kwargs)
            finally:
                _left(Kind.LOSS, original)

        # TorchScript compiles what is named here in place of a wrapper.
        loss.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
        loss.__original_fn = original  # type: ignore[attr-defined]
        return loss

    public = [name for name in dir(functional) if not name.startswith("_")]
    losses = [n for n in public if n.endswith("_loss") or "cross_entropy" in n or n == "kl_div"]
    undo = [_replace(functional, name, around) for name in losses]
    return lambda: [each() for each in undo]


def _hear_evaluations() -> Callable[[], object]:
    found = [(getattr(sys.modules.get(module), owner, None), name) for module, owner, name in _EVALUATIONS]
    undo = [_hear_method(owner, name, Kind.EVALUATION) for owner, name in found if owner is not None]
    return lambda: [each() for each in undo]


def _calls(function: Any, kind: Kind, subject: Any = None) -> Any:
    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        _entered(kind, subject)
        try:
            return function(*args, **kwargs)
        finally:
            _left(kind, subject)

    return call


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Callable[[], object]:
    """Wrap an attribute; what someone else has wrapped since then stays, and calls a wrapper that nobody hears."""
    original = getattr(owner, name)
    wrapper = functools.wraps(original)(wrap(original))
    setattr(owner, name, wrapper)
    return lambda: setattr(owner, name, original) if getattr(owner, name) is wrapper else None


_INSTALLERS: dict[Kind, Callable[[], Callable[[], object]]] = {
    Kind.RANGE: _hear_ranges,
    Kind.BACKWARD: _hear_backward,
    Kind.OPTIMIZER: _hear_optimizers,
    Kind.CLOSURE: lambda: lambda: None,  # the optimizers' hooks tell of it
    Kind.ZERO_GRAD: _hear_zero_grad,
    Kind.SCALED_STEP: _hear_scaled_steps,
    Kind.SCALE_UPDATE: _hear_scale_updates,
    Kind.LOADER: _hear_loaders,
    Kind.MODULE: _hear_modules,
    Kind.LOSS: _hear_losses,
    Kind.EVALUATION: _hear_evaluations,
}
