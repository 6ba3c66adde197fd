"""One step that is looked at: statistics on the device, copied to the host while the program goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from profkit.model.report_numerics import TensorKind
from profkit.recording.tensor_statistics import DTYPES, Statistics, can_measure, measured, read, sample_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["StepSample"]


class StepSample:
    """What a step's tensors hold, each at its first occurrence in the step.

    Args:
        step: Its number.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self._found: dict[tuple[TensorKind, str], tuple[str, Tensor]] = {}
        self._weights: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self._changes: dict[str, tuple[str, Tensor]] = {}
        self._arriving: list[_Arriving] = []

    def add(self, kind: TensorKind, name: str, value: Any, scale: Any = None) -> bool:
        """Look at a tensor, divided by ``scale``; False where it was there before in this step."""
        if (kind, name) in self._found:
            return False
        with _apart(value):
            local = _local(value)
            found = measured(local if scale is None else local / scale)
            self._found[kind, name] = (_dtype(value), found)
        return True

    def has_values(self) -> bool:
        """Whether anything was looked at."""
        return bool(self._found)

    def before_optimizer(self, optimizer: Any, name_of: Callable[[Any], str | None]) -> None:
        """Look at the gradients of an optimizer's parameters, and keep some of their values."""
        # One that takes scaled gradients decides on the device whether to step.
        left_out = getattr(optimizer, "found_inf", None) is not None
        scale = getattr(optimizer, "grad_scale", None)
        for group in optimizer.param_groups:
            rate = group.get("lr")
            moves = not left_out and not (isinstance(rate, float) and rate == 0)
            for parameter in group["params"]:
                name = name_of(parameter)
                gradient = None if name is None else _local(parameter.grad)
                if name is None or not can_measure(gradient) or not can_measure(parameter):
                    continue
                self.add("weight_gradient", name, gradient, scale)
                if moves and name not in self._weights:
                    with _apart(parameter):
                        weight = sample_of(_local(parameter))
                        pushed = sample_of(gradient)
                        self._weights[name] = (weight, weight.clone(), (pushed != 0) & pushed.isfinite())

    def after_optimizer(self, optimizer: Any) -> None:
        """Compare the parameters with what they were."""
        for name, (weight, before, pushed) in self._weights.items():
            with _apart(weight):
                self._changes[name] = (_dtype(weight), _change(weight, before, pushed))
        self._weights.clear()

    def close(self) -> None:
        """The step is over: begin to copy to the host."""
        rows = [row for _, row in (*self._found.values(), *self._changes.values())]
        devices = {row.device for row in rows}
        places = [[at for at, row in enumerate(rows) if row.device == device] for device in devices]
        self._arriving = [_Arriving(at, [rows[i] for i in at]) for at in places]
        self._found = {key: (dtype, row.new_empty(0)) for key, (dtype, row) in self._found.items()}
        self._changes = {key: (dtype, row.new_empty(0)) for key, (dtype, row) in self._changes.items()}

    def has_arrived(self) -> bool:
        """Whether everything is on the host."""
        return all(each.has_arrived() for each in self._arriving)

    def tensors(self) -> Iterator[tuple[TensorKind, str, str, Statistics]]:
        """What was found, in the order of execution; waits for it."""
        rows = self._rows()
        for at, ((kind, name), (dtype, _)) in enumerate(self._found.items()):
            yield kind, name, dtype, read(rows[at])

    def updates(self) -> Iterator[tuple[str, str, Sequence[float]]]:
        """Ratio, values and swallowed ones of each parameter; waits for them."""
        rows = self._rows()
        for at, (name, (dtype, _)) in enumerate(self._changes.items(), len(self._found)):
            yield name, dtype, rows[at]

    def _rows(self) -> dict[int, list[float]]:
        return {at: row for arriving in self._arriving for at, row in arriving.rows()}


class _Arriving:
    """Rows of one device on their way to the host."""

    def __init__(self, places: list[int], rows: list[Tensor]) -> None:
        import torch

        self._places, self._sizes = places, [row.numel() for row in rows]
        together = torch.cat(rows)
        self._event: Any = None
        if together.device.type == "cuda":
            self._host = torch.empty(together.shape, dtype=together.dtype, pin_memory=True)
            self._host.copy_(together, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()
        else:
            self._host = together

    def has_arrived(self) -> bool:
        return self._event is None or bool(self._event.query())

    def rows(self) -> Iterator[tuple[int, list[float]]]:
        if self._event is not None:
            self._event.synchronize()
        for at, row in zip(self._places, self._host.split(self._sizes), strict=True):
            yield at, row.tolist()


def _change(weight: Tensor, before: Tensor, pushed: Tensor) -> Tensor:
    """The norm of a change over that of the weight, values with a gradient, and those of them that stayed."""
    import torch

    kept = torch.float32 if weight.device.type == "mps" else torch.float64
    moved = torch.linalg.vector_norm(weight.to(kept) - before.to(kept))
    ratio = moved / torch.linalg.vector_norm(before.to(kept))
    swallowed = (weight == before) & pushed
    return torch.stack([ratio, pushed.sum().to(kept), swallowed.sum().to(kept)])


def _local(value: Any) -> Any:
    """The part of a distributed tensor that is here; another tensor as it is, without its graph."""
    if value is None:
        return None
    value = value.detach()
    return value.to_local() if hasattr(value, "to_local") else value


def _dtype(value: Any) -> str:
    return DTYPES[str(value.dtype).removeprefix("torch.")]


class _apart:
    """Without graph and autocast, which would cast whole tensors."""

    def __init__(self, value: Any) -> None:
        import torch

        self._contexts = (torch.no_grad(), torch.autocast(value.device.type, enabled=False))

    def __enter__(self) -> None:
        for context in self._contexts:
            context.__enter__()

    def __exit__(self, *error: object) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*error)
