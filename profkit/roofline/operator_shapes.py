"""The inputs of an operator call, read from what a recording writes of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from profkit.hardware import DTYPE_BYTES
from profkit.roofline.cpp_signature import element_type

__all__ = [
    "Call",
    "Tensor",
    "argument_kinds",
    "floating_input_type",
    "parse_call",
    "tensor_shapes",
    "tensor_types",
]

_LARGEST_SIDE, _MOST_ELEMENTS = 2**48, 2**62
_LONGEST_TEXT = 200_000
_NO_TENSOR = frozenset({"", "Scalar", "ScalarList", "None", "NoneType", "Device", "Layout", "Generator"})


@dataclass(frozen=True)
class Tensor:
    """One tensor input."""

    shape: tuple[int, ...]
    dtype: str | None = None
    strides: tuple[int, ...] | None = None

    @property
    def numel(self) -> int:
        """Elements as the operator sees them, repeats of expanded dimensions included."""
        return math.prod(self.shape)

    @property
    def stored(self) -> int:
        """Elements that lie in memory: an expanded dimension (stride 0) counts once."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.numel
        return math.prod(n for n, stride in zip(self.shape, self.strides, strict=True) if stride)

    def numel_bytes(self, fallback: str | None = "bf16") -> float:
        """Bytes of all elements; ``fallback`` is the type where the recording has none."""
        return self.numel * element_bytes(self.dtype or fallback)

    def nbytes(self, fallback: str | None = None) -> float:
        """Bytes in memory; ``fallback`` is the type where the recording has none."""
        return self.stored * element_bytes(self.dtype or fallback)


@dataclass(frozen=True)
class Call:
    """One operator call: its name without the library's prefix, its inputs in order, its scalars as text."""

    name: str
    inputs: tuple[Tensor | tuple[Tensor, ...] | None, ...]
    scalars: tuple[str, ...] = ()
    """As written, by position, empty for tensors; an empty tuple when the recording has none."""
    result: tuple[int, ...] = ()
    """The result's shape, where another call tells it; else empty."""

    def tensor(self, position: int) -> Tensor | None:
        """The tensor at a position, or None."""
        found = self.inputs[position] if 0 <= position < len(self.inputs) else None
        return found if isinstance(found, Tensor) else None

    def tensors(self) -> list[Tensor]:
        """Every tensor with at least one dimension, lists opened, in order."""
        flat: list[Tensor] = []
        for item in self.inputs:
            flat.extend(item if isinstance(item, tuple) else [item] if item else [])
        return [tensor for tensor in flat if tensor.shape]

    def operands(self) -> list[Tensor]:
        """Tensors that a pointwise kernel takes: with those of no dimension, but for wrapped Python numbers."""
        flat = [item for item in self.inputs if isinstance(item, Tensor)]
        own = {tensor.dtype for tensor in flat if tensor.shape}
        return [
            t for t in flat if t.shape or t.dtype not in ("fp64", "int64") or t.dtype in own
        ] or self.tensors()

    def scalar(self, position: int) -> str:
        """A scalar's text, or an empty text."""
        return self.scalars[position] if 0 <= position < len(self.scalars) else ""

    def flag(self, position: int) -> bool | None:
        """A boolean scalar; None when it is not written."""
        return {"True": True, "False": False, "1": True, "0": False}.get(self.scalar(position))

    def integers(self, position: int) -> tuple[int, ...] | None:
        """A list of integers such as ``[1, 1]``, or one integer; None when it is not written."""
        try:
            value = json.loads(self.scalar(position) or "null")
        except (ValueError, RecursionError):
            return None
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(v, int) and not isinstance(v, bool) and abs(v) < _LARGEST_SIDE for v in values):
            return None
        return tuple(values)


def element_bytes(dtype: str | None) -> float:
    """Bytes of an element; 4 when the type is unknown."""
    return DTYPE_BYTES.get(dtype or "", 4.0)


def parse_call(name: str, shapes: str, dtypes: str, strides: str, scalars: str) -> Call:
    """Read an operator's inputs from the JSON texts of `profkit.model.Ranges`; what makes no sense is left out."""
    sizes = _list(shapes)
    types, steps, values = _list(dtypes), _list(strides), _list(scalars)
    inputs = [
        _input(size, _at(types, index), _at(steps, index), bool(types)) for index, size in enumerate(sizes)
    ]
    return Call(name, tuple(inputs), tuple(v if isinstance(v, str) else json.dumps(v) for v in values))


def tensor_shapes(shapes: str) -> tuple[tuple[int, ...], ...] | None:
    """The shapes of an operator's tensors with dimensions, from the JSON text of `profkit.model.Ranges.shapes`.

    None without any, and of lists of tensors: a kernel over a list works on a part of it that they do not tell.
    """
    found = [tuple(each) for each in _list(shapes) if isinstance(each, list) and each]
    whole = all(isinstance(side, int) and 0 <= side < _LARGEST_SIDE for shape in found for side in shape)
    return tuple(found) if found and whole else None


def tensor_types(dtypes: str) -> tuple[str, ...]:
    """The types of an operator's tensors in order, from the JSON text of `profkit.model.Ranges.dtypes`."""
    written = (item for item in _list(dtypes) if isinstance(item, str) and item not in _NO_TENSOR)
    return tuple(t for item in written if (t := element_type(item)))


def argument_kinds(dtypes: str) -> tuple[bool, ...]:
    """Of each argument of an operator: whether it is a tensor or a list of them."""
    return tuple(isinstance(item, str) and item not in _NO_TENSOR for item in _list(dtypes))


def floating_input_type(dtypes: str) -> str | None:
    """The first floating-point type among an operator's tensors, from the JSON text of `profkit.model.Ranges.dtypes`."""
    return next((t for t in tensor_types(dtypes) if t.startswith(("fp", "bf", "complex"))), None)


def _input(size: Any, dtype: Any, strides: Any, typed: bool) -> Tensor | tuple[Tensor, ...] | None:
    if not isinstance(size, list):
        return None
    written = dtype if isinstance(dtype, str) else ""
    if size and all(isinstance(item, list) for item in size):
        steps = strides if isinstance(strides, list) else []
        items = [_input(item, "list item", _at(steps, i), False) for i, item in enumerate(size)]
        return tuple(item for item in items if isinstance(item, Tensor))
    if (
        not all(isinstance(n, int) and 0 <= n < _LARGEST_SIDE for n in size)
        or math.prod(size) > _MOST_ELEMENTS
    ):
        return None
    if not size and (not typed or written in _NO_TENSOR or written.endswith("List")):
        return None
    known = (
        isinstance(strides, list) and len(strides) == len(size) and all(isinstance(s, int) for s in strides)
    )
    return Tensor(tuple(size), element_type(written), tuple(strides) if known else None)


def _list(text: str) -> list[Any]:
    if not text or len(text) > _LONGEST_TEXT:
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _at(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None
