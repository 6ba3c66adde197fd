"""`instrument`: phases in a training loop that is left as it is; nothing is attached to its objects."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

from profkit.recording.event_marks import EventMarks, module_names, plain_module, refuse_no_module
from profkit.recording.phases import Phase, phase
from profkit.recording.program_events import Kind, listen, unlisten

__all__ = ["Instrument", "instrument"]


def instrument(model: Any = None, optimizer: Any = None, loader: Any = None, *, depth: int = 1) -> Instrument:
    """Mark a training loop without editing it.

    The model's forward and backward, its modules down to ``depth``, the optimizer's ``step`` and
    ``zero_grad``, and the loader's fetches become phases: at once, until `Instrument.remove`, or for a
    ``with`` block.

    Args:
        model: A ``torch.nn.Module``, or None.
        optimizer: A ``torch.optim.Optimizer``, or None.
        loader: A ``torch.utils.data.DataLoader``, or None. Other iterables have no hooks: iterate over
            `Instrument.loader` instead.
        depth: How deep to mark modules by their names: 0 marks the model only. The backward of a module is
            marked where its inputs need gradients.

    Raises:
        RecordingError: The model is not a module.
    """
    refuse_no_module("profkit.instrument", model)
    return Instrument(model, optimizer, loader, depth)


class Instrument:
    """What `instrument` has marked.

    Attributes:
        loader: The loader that was given, whose fetches are phases.
    """

    def __init__(self, model: Any, optimizer: Any, loader: Any, depth: int) -> None:
        known = hasattr(loader, "_index_sampler")
        self.loader = loader if known or loader is None else _Fetching(loader)
        self._marks: EventMarks | None = EventMarks(
            _NamedParts(model, optimizer, loader if known else None, depth)
        )
        listen(self._marks)

    def __enter__(self) -> Instrument:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Mark nothing more."""
        if self._marks is not None:
            unlisten(self._marks)
            self._marks.close_all()
            self._marks = None


class _NamedParts:
    """One model with its modules, one optimizer, one loader. Nothing is attached to them."""

    def __init__(self, model: Any, optimizer: Any, loader: Any, depth: int) -> None:
        self._optimizer, self._loader = optimizer, loader
        self._names: MutableMapping[Any, str] = {}
        self._open_modules = _OpenModules()
        self.kinds: tuple[Kind, ...] = ()
        if model is not None:
            self.kinds += (Kind.BACKWARD, Kind.MODULE)
            self._names = module_names(plain_module(model), depth)
            self._model = plain_module(model)
        if optimizer is not None:
            self.kinds += (Kind.OPTIMIZER, Kind.CLOSURE, Kind.ZERO_GRAD)
        if loader is not None:
            self.kinds += (Kind.LOADER,)

    def entered(self, kind: Kind, subject: Any) -> str | None:
        """The phase that a stretch is."""
        if kind is Kind.MODULE:
            module = plain_module(subject)
            return "forward" if module is self._model else self._names.get(module)
        if kind is Kind.BACKWARD:
            return "backward"
        if kind is Kind.LOADER:
            return "data" if subject._index_sampler is self._loader._index_sampler else None
        if subject is not self._optimizer:
            return None
        return "optimizer" if kind is Kind.OPTIMIZER else "zero_grad"

    def left(self, kind: Kind, subject: Any, values: Any) -> None:
        """The backward of a module within the model is marked from here on."""
        if kind is Kind.MODULE and subject in self._names:
            _watch_backward(f"{self._names[subject]}.backward", self._open_modules, *values)

    def passes_over(self, module: Any) -> bool:
        """Whether a module is neither the model nor one of those that have a name."""
        plain = plain_module(module)
        return plain not in self._names and plain is not self._model


class _Fetching:
    """An iterable whose fetches are phases."""

    def __init__(self, source: Iterable[Any]) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        iterator = iter(self._source)
        fetch = phase("data")(lambda: next(iterator, _END))
        while (item := fetch()) is not _END:
            yield item

    def __len__(self) -> int:
        return len(self._source)  # type: ignore[arg-type]


_END = object()


class _OpenModules(threading.local):
    """The modules whose backward runs on this thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Phase] = []

    def open(self, marked: Phase) -> None:
        self.stack.append(marked)
        marked.__enter__()

    def close(self, marked: Phase) -> None:
        """Close a module and whatever is still open within it; residual paths end in any order."""
        if not any(entry is marked for entry in self.stack):
            return
        while self.stack:
            inner = self.stack.pop()
            inner.__exit__(None, None, None)
            if inner is marked:
                return


def _watch_backward(name: str, open_modules: _OpenModules, inputs: Any, output: Any) -> None:
    """Mark the backward of a module, from its output's gradient to its inputs' gradients.

    Hooks on tensors, and no full backward hooks: those put views into the graph, which in-place operations
    that follow the module cannot stand.
    """
    import torch

    ends = [value for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad]
    if not (ends and isinstance(output, torch.Tensor) and output.requires_grad):
        return
    if any(value is output for value in ends):
        return  # it returns its input: there is nothing between
    marked = Phase(name, {})
    left = [len(ends)]

    def begin(gradient: Any) -> None:
        open_modules.open(marked)

    def end(gradient: Any) -> None:
        left[0] -= 1
        if not left[0]:
            left[0] = len(ends)
            open_modules.close(marked)

    output.register_hook(begin)
    for value in ends:
        value.register_hook(end)
