"""Memory snapshots made up from real ones: the objects, the opcodes of their pickles, and the bytes."""

from __future__ import annotations

import gzip
import json
import pickle
import pickletools
import struct
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

from tests.fuzz.damage import NUMBERS, Made, damaged, odd_value
from tests.shared import DATA

_RECORDINGS = (
    "leak",
    "fragmentation",
    "cases/oom",
    "cases/streams",
    "cases/graph_pools",
    "cases/oom_observer",
)
_OPCODES = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]
_ACTIONS = (
    "alloc", "free", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
    "segment_unmap", "snapshot", "oom", "user_defined", "new_in_torch_9",
)  # fmt: skip
_MOST_ENTRIES = 120
_MOST_OPERATIONS = 6000


@cache
def sources() -> list[bytes]:
    """Snapshots as protocol 4 pickles of plain objects, each cut to a few entries."""
    files = [DATA / f"snapshot/{name}.pickle.gz" for name in _RECORDINGS]
    found = [gzip.decompress(file.read_bytes()) for file in files]
    found += [file.read_bytes() for file in sorted((DATA / "cases").glob("5*.pickle"))]
    return [pickle.dumps(_small(pickle.loads(data)), 4) for data in found]


def _small(snapshot: Any) -> Any:
    if isinstance(snapshot, dict):
        for trace in snapshot.get("device_traces") or []:
            del trace[_MOST_ENTRIES:]
        del (snapshot.get("segments") or [])[20:]
    return snapshot


def make(random: Random) -> Made:
    """One snapshot, different for every state of ``random``."""
    data = random.choice(sources())
    way = random.random()
    if way < 0.6:
        return _changed_objects(pickle.loads(data), random)
    if way < 0.8:
        return Made(_changed_opcodes(data, random), ".pickle")
    return Made(damaged(data, random), ".pickle")


def _changed_objects(snapshot: Any, random: Random) -> Made:
    holder = [snapshot]
    for _ in range(random.choice([0, 1, 3, 10, 40])):
        _change(holder, random)
    holder = holder or [None]
    written = random.random()
    if written < 0.1:
        with suppress(ValueError, RecursionError):  # a snapshot that holds itself
            return Made(json.dumps(holder[0], default=str, skipkeys=True).encode("utf-8", "replace"), ".json")
    try:
        data = pickle.dumps(holder[0], random.randint(0, 5))
    except (RecursionError, UnicodeError):
        data = pickle.dumps(snapshot, 2)
    return Made(gzip.compress(data, 1) if written > 0.95 else data, ".pickle")


def _change(holder: list[Any], random: Random) -> None:
    """Walk down to a random place, and change what is there."""
    above: Any = holder
    while True:
        keys = list(above) if isinstance(above, dict) else range(len(above))
        if not keys:
            return
        key = random.choice(keys)
        value = above[key]
        if not isinstance(value, dict | list) or not value or random.random() < 0.08:
            break
        above = value
    kind = random.random()
    if kind < 0.35:
        above[key] = odd_value(random)
    elif kind < 0.5:
        del above[key]
    elif kind < 0.6 and isinstance(above, list):
        above.insert(key, value)
    elif kind < 0.7 and type(value) is int:
        above[key] = value + random.choice([1, -1, 512, -512, 2**40, -(2**63)])
    elif kind < 0.85 and isinstance(above, dict):
        above[
            random.choice(
                ["action", "addr", "size", "frames", "time_us", "stream", "state", "blocks", "address"]
            )
        ] = random.choice(_ACTIONS) if random.random() < 0.5 else odd_value(random)
    elif isinstance(above, dict):
        above[
            random.choice(
                ["segments", "device_traces", "external_annotations", "allocator_settings", 5, None]
            )
        ] = above
    else:
        above[key] = above


def _changed_opcodes(data: bytes, random: Random) -> bytes:
    operations = list(_operations(data))
    for _ in range(random.choice([1, 1, 2, 5, 20])):
        place = random.randrange(len(operations))
        match random.randrange(5):
            case 0:
                operations[place] = _operation(random)
            case 1:
                operations.insert(place, _operation(random))
            case 2:
                del operations[place]
            case 3:
                operations.insert(place, operations[random.randrange(len(operations))])
            case _:
                other = random.randrange(len(operations))
                operations[place], operations[other] = operations[other], operations[place]
        if not operations:
            break
    return b"".join(operations)


@cache
def _operations(data: bytes) -> tuple[bytes, ...]:
    places = [place for _, _, place in pickletools.genops(data)]
    return tuple(data[start:end] for start, end in zip(places, [*places[1:], len(data)], strict=True))


def _operation(random: Random) -> bytes:
    """Any opcode, with an argument that may fit."""
    number = random.choice(NUMBERS)
    whole = int(number) if number == number and abs(number) < 2**64 else 2**40
    argument = random.choice(
        [
            b"",
            bytes([whole & 0xFF]),
            struct.pack("<H", whole & 0xFFFF),
            struct.pack("<I", whole & 0xFFFFFFFF),
            struct.pack("<Q", whole & (2**64 - 1)),
            struct.pack("<d", float(number)),
            f"{number}\n".encode(),
            b"os\nsystem\n",
            b"\x05abcde",
            struct.pack("<I", 3) + b"abc",
            random.randbytes(random.randrange(12)),
        ]
    )
    return random.choice(_OPCODES) + argument
