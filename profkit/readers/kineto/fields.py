"""The arguments of events that are read, by kind of event, and how their values become columns."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model import UNKNOWN
from profkit.readers.kineto.text import Event

__all__ = [
    "CallFields",
    "DeviceFields",
    "MemoryFields",
    "MetaFields",
    "OperatorFields",
    "SyncFields",
    "fields_of",
    "integers",
    "opaque",
    "opaques",
    "triples",
]

_NOTHING = msgspec.Raw(b"")
_STREAM = re.compile(r"\s*(?:stream\s+)?(-?\d{1,40})\b.*", re.IGNORECASE | re.DOTALL)
_INT64 = np.iinfo(np.int64)
_TWO_64 = 1 << 64


class DeviceFields(msgspec.Struct, gc=False):
    """Of kernels, copies and memsets; of ``record_param_comms`` what is said of a collective."""

    device: int | str | None = None
    context: int | str | None = None
    stream: int | str | None = None
    correlation: int | str | None = 0
    grid: list[int] | None = None
    block: list[int] | None = None
    registers: int = msgspec.field(default=UNKNOWN, name="registers per thread")
    shared_bytes: float = msgspec.field(default=UNKNOWN, name="shared memory")
    graph_node: int = msgspec.field(default=0, name="graph node id")
    external: int | str | None = msgspec.field(default=0, name="External id")
    old_external: int | str | None = msgspec.field(default=0, name="external id")
    module: str | None = msgspec.field(default=None, name="module_fqn")
    bytes: float = UNKNOWN
    kind: str | None = None
    source: int = msgspec.field(default=UNKNOWN, name="fromDevice")
    runner: int = msgspec.field(default=UNKNOWN, name="inDevice")
    target: int = msgspec.field(default=UNKNOWN, name="toDevice")
    collective: str | None = msgspec.field(default=None, name="Collective name")
    dtype: str | None = None
    in_elements: int = msgspec.field(default=UNKNOWN, name="In msg nelems")
    out_elements: int = msgspec.field(default=UNKNOWN, name="Out msg nelems")
    group_size: int = msgspec.field(default=UNKNOWN, name="Group size")
    group_name: str | int | None = msgspec.field(default=None, name="Process Group Name")
    group_description: str | None = msgspec.field(default=None, name="Process Group Description")
    sequence: int = msgspec.field(default=UNKNOWN, name="Seq")
    source_rank: int = msgspec.field(default=UNKNOWN, name="Src Rank")
    target_rank: int = msgspec.field(default=UNKNOWN, name="Dst Rank")


class CallFields(msgspec.Struct, gc=False):
    """Of runtime and driver calls."""

    correlation: int | str | None = 0
    external: int | str | None = msgspec.field(default=0, name="External id")


class SyncFields(msgspec.Struct, gc=False):
    """Of synchronisation records."""

    context: int | str | None = None
    stream: int | str | None = None
    correlation: int | str | None = 0


class OperatorFields(msgspec.Struct, gc=False):
    """Of operators; the lists stay as they are written."""

    sequence: int = msgspec.field(default=UNKNOWN, name="Sequence number")
    external: int | str | None = msgspec.field(default=0, name="External id")
    old_external: int | str | None = msgspec.field(default=0, name="external id")
    shapes: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    old_shapes: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input dims")
    dtypes: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Strides")
    scalars: msgspec.Raw = msgspec.field(default=_NOTHING, name="Concrete Inputs")


class MemoryFields(msgspec.Struct, gc=False):
    """Of ``[memory]`` instants."""

    device_type: int = msgspec.field(default=UNKNOWN, name="Device Type")
    device: int = msgspec.field(default=UNKNOWN, name="Device Id")
    bytes: float = msgspec.field(default=0, name="Bytes")
    address: int = msgspec.field(default=UNKNOWN, name="Addr")
    allocated: float = msgspec.field(default=UNKNOWN, name="Total Allocated")
    reserved: float = msgspec.field(default=UNKNOWN, name="Total Reserved")


class MetaFields(msgspec.Struct, gc=False):
    """Of metadata events."""

    name: str | None = None


T = TypeVar("T", bound=msgspec.Struct)

_decoders: dict[type, tuple[Any, Any]] = {}


def fields_of(events: Sequence[Event], kind: type[T]) -> list[T]:
    """The arguments of ``events``; what is missing or of a wrong type has its default."""
    if kind not in _decoders:
        _decoders[kind] = (
            msgspec.json.Decoder(list[kind], strict=False),  # type: ignore[valid-type]
            msgspec.json.Decoder(kind, strict=False),
        )
    many, one = _decoders[kind]
    try:
        found: list[T] = many.decode(b"[%b]" % b",".join([event.args for event in events]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_leniently(event.args, kind, one) for event in events]
    return found


def _leniently(raw: msgspec.Raw, kind: type[T], decoder: Any) -> T:
    try:
        whole: T = decoder.decode(raw)
        return whole
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        made = kind()
    try:
        values = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return made
    for field in msgspec.structs.fields(kind):
        if field.encode_name in values:
            try:
                value = msgspec.json.decode(values[field.encode_name], type=field.type, strict=False)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            setattr(made, field.name, value)
    return made


def integers(values: Sequence[float], dtype: str = "i8", fill: int = UNKNOWN) -> NDArray[Any]:
    """Numbers as a column; those that it cannot hold become ``fill``."""
    limits = np.iinfo(dtype)
    try:
        column = np.array(values, np.int64) if values else np.empty(0, np.int64)
    except (OverflowError, ValueError):  # beyond int64, not finite
        fits = [int(v) if _INT64.min <= v <= _INT64.max else fill for v in values]
        column = np.array(fits, np.int64)
    column[(column < limits.min) | (column > limits.max)] = fill
    return column.astype(dtype)


def triples(values: Sequence[list[int] | None], dtype: str = "i4") -> tuple[NDArray[Any], ...]:
    """Lists of three numbers (grid, block) as three columns; others are unknown."""
    unknown = [UNKNOWN] * 3
    flat = [v if v is not None and len(v) == 3 else unknown for v in values]
    column = integers([number for triple in flat for number in triple], dtype).reshape(-1, 3)
    return column[:, 0], column[:, 1], column[:, 2]


def opaques(values: Sequence[Any]) -> NDArray[np.int64]:
    """Ids as a column: compared, never computed with."""
    try:
        column = np.array(values) if values else np.empty(0, np.int64)
    except (OverflowError, ValueError):
        column = np.empty(0)
    if column.dtype == np.int64:
        return column
    return np.array([opaque(value) for value in values], np.int64)


def opaque(value: Any) -> int:
    """An id of any type as a number of 64 bits, always the same one; ``stream 7`` and ``"7"`` are 7."""
    if isinstance(value, str):
        match = _STREAM.fullmatch(value)
        value = int(match[1]) if match else _digest(value)
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else _digest(repr(value))
    elif value is None:
        return UNKNOWN
    if _INT64.min <= value <= _INT64.max:
        return int(value)
    return int(value) - _TWO_64 if 0 < value < _TWO_64 else _digest(hex(value))


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), signed=True)
