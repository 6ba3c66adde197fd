"""`instrument`: phases in a training loop that is left as it is, by hooks that come off again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from profkit.recording.phases import Phase, phase

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
    """
    return Instrument(model, optimizer, loader, depth)


class Instrument:
    """The hooks of `instrument`.

    Attributes:
        loader: The loader that was given, whose fetches are phases.
    """

    def __init__(self, model: Any, optimizer: Any, loader: Any, depth: int) -> None:
        self._undo: list[Callable[[], object]] = []
        self.loader = loader
        if model is not None:
            self._mark_model(model, depth)
        if optimizer is not None:
            self._mark_optimizer(optimizer)
        if loader is not None:
            self._mark_loader(loader)

    def __enter__(self) -> Instrument:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Take every hook off again."""
        while self._undo:
            self._undo.pop()()

    def _mark_model(self, model: Any, depth: int) -> None:
        import torch

        # Tensor.backward calls this function through its module, so one wrapper sees every backward.
        original = torch.autograd.backward
        torch.autograd.backward = phase("backward")(original)
        self._undo.append(lambda: setattr(torch.autograd, "backward", original))
        open_modules = _OpenModules()
        for name, module in model.named_modules():
            if not name:
                self._hook_forward(module, "forward")
            elif name.count(".") < depth:
                self._hook_forward(module, name)
                before = module.register_forward_hook(_watch_backward(f"{name}.backward", open_modules))
                self._undo.append(before.remove)

    def _hook_forward(self, module: Any, name: str) -> None:
        marked = phase(name)

        def enter(module: Any, inputs: Any) -> None:
            marked.__enter__()

        def leave(module: Any, inputs: Any, output: Any) -> None:
            marked.__exit__(None, None, None)

        self._undo.append(module.register_forward_pre_hook(enter, prepend=True).remove)
        self._undo.append(module.register_forward_hook(leave, always_call=True).remove)

    def _mark_optimizer(self, optimizer: Any) -> None:
        marked = phase("optimizer")

        def enter(optimizer: Any, args: Any, kwargs: Any) -> None:
            marked.__exit__(
                None, None, None
            )  # a step that raised has left it open: torch skips the post hook
            marked.__enter__()

        def leave(optimizer: Any, args: Any, kwargs: Any) -> None:
            marked.__exit__(None, None, None)

        # Hooks, and no replaced step(): learning-rate schedulers insist on a bound method.
        self._undo.append(optimizer.register_step_pre_hook(enter).remove)
        self._undo.append(optimizer.register_step_post_hook(leave).remove)
        self._replace(optimizer, "zero_grad", phase("zero_grad")(optimizer.zero_grad))

    def _mark_loader(self, loader: Any) -> None:
        if not hasattr(loader, "_get_iterator"):
            self.loader = _Fetching(loader)
            return
        get_iterator = loader._get_iterator

        def marked_iterator() -> Any:
            iterator = get_iterator()
            iterator._next_data = phase("data")(iterator._next_data)
            return iterator

        self._replace(loader, "_get_iterator", marked_iterator)

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        """Shadow a method of one object; other objects of its class keep theirs."""
        setattr(owner, name, value)
        self._undo.append(lambda: delattr(owner, name))


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


def _watch_backward(name: str, open_modules: _OpenModules) -> Callable[[Any, Any, Any], None]:
    """A forward hook that marks the module's backward: from its output's gradient to its inputs' gradients.

    Hooks on tensors, and no full backward hooks: those put views into the graph, which in-place operations
    that follow the module cannot stand.
    """

    def hook(module: Any, inputs: Any, output: Any) -> None:
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

    return hook
