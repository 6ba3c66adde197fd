"""Phases from what a program does: for the parts of it that were named, or for all of an unedited script."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, Protocol

from profkit.errors import RecordingError
from profkit.recording.backends import NOTHING_OPEN, Opened, close_marks, open_marks, recording
from profkit.recording.program_events import Kind, calls_closure, in_backward, listen, unlisten
from profkit.recording.stages import Stage

if TYPE_CHECKING:
    from profkit.recording.recorder import Recorder

__all__ = [
    "EventMarks",
    "Parts",
    "ScriptParts",
    "mark_recorded_steps",
    "module_names",
    "plain_module",
    "refuse_no_module",
]


class Parts(Protocol):
    """What of a program is a phase."""

    kinds: tuple[Kind, ...]

    def entered(self, kind: Kind, subject: Any) -> str | None:
        """The phase that a stretch is; None for none."""

    def left(self, kind: Kind, subject: Any, values: Any) -> None:
        """A stretch has ended, whether it was a phase or not."""

    def passes_over(self, module: Any) -> bool:
        """Whether a module is certain to be no phase: most modules of a model, several a millisecond."""


class _Open(threading.local):
    """What is open on this thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[tuple[Kind, int, str, Opened]] = []


class EventMarks:
    """Opens a phase for each stretch that is one."""

    def __init__(self, parts: Parts) -> None:
        self.kinds = parts.kinds
        self._parts = parts
        self._open = _Open()

    def entered(self, kind: Kind, subject: Any) -> None:
        """A stretch begins; a closure of the optimizer suspends the optimizer's phase."""
        if (kind is Kind.MODULE and self._parts.passes_over(subject)) or not recording():
            return
        stack = self._open.stack
        if kind is Kind.CLOSURE:
            if stack and stack[-1][0] is Kind.OPTIMIZER:
                close_marks(stack[-1][3])
                stack[-1] = (*stack[-1][:3], NOTHING_OPEN)
            return
        if kind is Kind.OPTIMIZER:
            self._close(kind, id(subject))  # a step that raised has left it open: torch skips the hook
        name = self._parts.entered(kind, subject)
        nested = kind is not Kind.MODULE and any(entry[2] == name for entry in stack)
        if name is not None and not nested:
            later = kind is Kind.OPTIMIZER and calls_closure(subject)  # it begins when the closure has ended
            opened = NOTHING_OPEN if later else open_marks(name, {})
            if recording():
                stack.append((kind, id(subject), name, opened))
            else:
                close_marks(opened)  # the recording has ended with the step before

    def left(self, kind: Kind, subject: Any, values: Any = None) -> None:
        """A stretch ends, and with it whatever is still open within it."""
        if kind is Kind.MODULE and self._parts.passes_over(subject):
            return
        stack = self._open.stack
        self._parts.left(kind, subject, values)
        if kind is not Kind.CLOSURE:
            self._close(kind, id(subject))
        elif stack and stack[-1][0] is Kind.OPTIMIZER and recording():
            kind, key, name, _ = stack.pop()
            stack.append((kind, key, name, open_marks(name, {})))

    def close_all(self) -> None:
        """Close what is open on this thread."""
        while self._open.stack:
            close_marks(self._open.stack.pop()[3])

    def _close(self, kind: Kind, key: int) -> None:
        stack = self._open.stack
        if any(entry[0] is kind and entry[1] == key for entry in stack):
            while stack:
                entry = stack.pop()
                close_marks(entry[3])
                if entry[0] is kind and entry[1] == key:
                    return


class ScriptParts:
    """The phases of an unedited script: data, forward (the outermost module), loss, backward, optimizer.

    Args:
        depth: How deep modules within the outermost one are phases too, by their names.
        marked: Names of the phases that were recorded; those that the program itself marks are left to it.
    """

    kinds: tuple[Kind, ...] = (
        Kind.LOADER, Kind.MODULE, Kind.LOSS, Kind.BACKWARD, Kind.OPTIMIZER, Kind.CLOSURE,
    )  # fmt: skip

    def __init__(self, depth: int, marked: Container[str]) -> None:
        self._depth = depth
        self._marked = marked
        self._mine: set[str] = set()
        self._within = threading.local()
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        self._trains = False

    def entered(self, kind: Kind, subject: Any) -> str | None:
        """The phase that a stretch is."""
        if kind is Kind.MODULE:
            name = self._of_module(subject)
        elif kind is Kind.LOSS:
            name = "loss"
        elif kind is Kind.BACKWARD:
            name = "backward"
        else:
            name = "data" if kind is Kind.LOADER else "optimizer"
        if name is None or (name in self._marked and name not in self._mine):
            return None
        self._mine.add(name)
        return name

    def passes_over(self, module: Any) -> bool:
        """Whether a module lies within the outermost one, and only that is a phase."""
        outermost = None if self._depth else getattr(self._within, "module", None)
        return outermost is not None and outermost() not in (None, module)

    def _of_module(self, module: Any) -> str | None:
        outermost = getattr(self._within, "module", None)
        if outermost is not None and outermost() is not None:
            return self._names.get(module) if self._depth else None
        if in_backward():
            return None  # recomputed activations are backward's
        self._within.module = weakref.ref(module)
        if self._depth and module not in self._known:
            self._known.add(module)
            self._names.update(module_names(plain_module(module), self._depth))
        return self._name_of_outermost(module)

    def _name_of_outermost(self, module: Any) -> str:
        import torch

        kind = type(module)
        name = f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}".lower()
        if isinstance(module, torch.nn.modules.loss._Loss) or "loss" in name or "crossentropy" in name:
            return "loss"
        evaluates = self._trains and not module.training and not torch.is_grad_enabled()
        return "evaluation" if evaluates else "forward"

    def left(self, kind: Kind, subject: Any, values: Any) -> None:
        """The outermost module may have ended; after a backward, the program is known to train."""
        self._trains = self._trains or kind is Kind.BACKWARD
        if kind is Kind.MODULE:
            outermost = getattr(self._within, "module", None)
            if outermost is not None and outermost() is subject:
                self._within.module = None


def mark_recorded_steps(recorder: Recorder, depth: int) -> Callable[[], None]:
    """Mark the phases of a program while the recorder warms up and records; plain steps are left as they are.

    Returns:
        What ends it.
    """
    marks, on = EventMarks(ScriptParts(depth, recorder.phases)), False

    def follow(stage: Stage) -> None:
        nonlocal on
        wanted = stage in (Stage.WARMUP, Stage.ACTIVE)
        if wanted != on:
            on = wanted
            (listen if wanted else unlisten)(marks)

    recorder.on_stage = follow
    follow(recorder.stage)
    return lambda: follow(Stage.DONE)


def plain_module(module: Any) -> Any:
    """The module that ``torch.compile`` was given, else the module itself."""
    return getattr(module, "_orig_mod", module)


def refuse_no_module(where: str, model: Any) -> None:
    """Refuse what is neither None nor a module.

    Raises:
        RecordingError: It is something else.
    """
    if model is not None and not hasattr(model, "named_modules"):
        raise RecordingError(where, f"{model!r} is not a torch.nn.Module")


def module_names(model: Any, depth: int) -> weakref.WeakKeyDictionary[Any, str]:
    """The modules within a model by their dotted names, down to ``depth``."""
    names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
    for name, module in model.named_modules():
        if name and name.count(".") < depth:
            names[module] = name
    return names
