"""Memory snapshots the plain way: a dictionary of what is allocated, entry by entry (docs/memory.md has the rules)."""

from __future__ import annotations

import json
from bisect import bisect_right, insort
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from profkit.readers.snapshot.pickled import load
from profkit.verification.events import UnreadError

__all__ = ["DeviceMemory", "read_memory"]

_GROWN: Final = ("segment_alloc", "segment_map")
_SHRUNK: Final = ("segment_free", "segment_unmap")
_FREED: Final = ("free_requested", "free_completed", "free")
_NO_ADDRESS: Final = ("oom", "snapshot")
_ACTIONS: Final = ("alloc", *_FREED, *_GROWN, *_SHRUNK, *_NO_ADDRESS)
_HELD: Final = ("active_allocated", "active_pending_free", "active_awaiting_free")
_SMALL: Final = 1 << 20
"""Rounded requests up to here are cut exactly; of a larger one a rest up to here stays with the block."""
_MOST_BYTES: Final = 1 << 50
_MOST_DEVICES: Final = 1 << 7
"""torch numbers devices with a signed byte."""

Entry = dict[str, Any]


@dataclass
class DeviceMemory:
    """What one device's part of a snapshot says; None is what plain means cannot know."""

    device: int
    actions: Counter[str] = field(default_factory=Counter)
    reserved_bytes: int | None = None
    allocated_bytes: int | None = None
    active_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_allocated_bytes: int | None = None


def read_memory(data: bytes | bytearray | memoryview, name: str) -> list[DeviceMemory]:
    """The memory of each device of a snapshot.

    Args:
        data: The file, a pickle or JSON; the pickle is read by the unpickler that runs nothing.
        name: What messages call it.

    Raises:
        UnreadError: It is of a shape that plain means do not cover.
        ReadError: It is no snapshot at all.
    """
    plain_text = bytes(data[:64]).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    try:
        snapshot = json.loads(bytes(data)) if plain_text else load(data, name)
    except (ValueError, RecursionError):
        raise UnreadError("Python's own JSON reader refuses it") from None
    if isinstance(snapshot, list):
        snapshot = {"segments": snapshot}
    if not isinstance(snapshot, dict):
        raise UnreadError("it is not a snapshot")
    traces, segments = (
        part if isinstance(part, list | tuple) else None
        for part in (snapshot.get("device_traces"), snapshot.get("segments"))
    )
    _refuse_aliases([*(traces or ()), *(segments or ())])
    settings = snapshot.get("allocator_settings")
    entries = {
        device: _entries(trace) for device, trace in enumerate((traces or ())[:_MOST_DEVICES]) if trace
    }
    whole = [each for each in segments or () if _is_segment(each)]
    devices = sorted({d for d, e in entries.items() if e} | {segment.get("device", 0) for segment in whole})
    return [
        _Device(
            device,
            entries.get(device, []),
            [segment for segment in whole if segment.get("device", 0) == device]
            if segments is not None
            else None,
            settings if isinstance(settings, dict) else {},
        ).memory()
        for device in devices
    ]


class _Device:
    """One device's entries and segments."""

    def __init__(
        self, device: int, entries: list[Entry], segments: list[Entry] | None, settings: Entry
    ) -> None:
        self.found = DeviceMemory(device, Counter(entry["action"] for entry in entries))
        self.entries = entries
        self.segments = segments or []
        self.known_end = segments is not None
        self.settings = settings
        self.expandable = (
            settings.get("expandable_segments") is True
            or any(segment.get("is_expandable") is True for segment in self.segments)
            or any(entry["action"] in ("segment_map", "segment_unmap") for entry in entries)
        )
        self.end = self._blocks_at_end()

    def memory(self) -> DeviceMemory:
        """All figures that can be known."""
        if self.known_end:
            self.found.reserved_bytes = sum(segment["total_size"] for segment in self.segments)
            self.found.peak_reserved_bytes = self._peak_reserved()
            if self._is_consistent():
                self.found.allocated_bytes = sum(b for b, state in self.end.values() if state == _HELD[0])
                self.found.active_bytes = sum(b for b, _ in self.end.values())
                self.found.peak_allocated_bytes = self._peak_allocated()
        return self.found

    def _is_consistent(self) -> bool:
        """Whether the history ends with the blocks that the segments hold: else the file says two things."""
        last: dict[int, str] = {}
        for entry in self.entries:
            if entry["action"] in ("alloc", *_FREED):
                last[_bits(entry["addr"])] = entry["action"]
        held = {address: state for address, (_, state) in self.end.items()}
        waiting = _HELD[1:] if "free_completed" in self.found.actions else ("", *_HELD[1:])
        return all(
            (action == "alloc") == (held.get(address) == _HELD[0])
            and (action != "free_requested" or held.get(address, "") in waiting)
            for address, action in last.items()
        )

    def _blocks_at_end(self) -> dict[int, tuple[int, str]]:
        """Size and state of what is held when the snapshot was taken, by address."""
        blocks: dict[int, tuple[int, str]] = {}
        for segment in self.segments:
            at = segment.get("address", 0)
            blocks_of = segment.get("blocks") or ()
            for block in blocks_of if isinstance(blocks_of, list | tuple) else (blocks_of,):
                if not isinstance(block, dict) or not _is_size(block.get("size")) or type(at) is not int:
                    raise UnreadError("a block is malformed")
                if block.get("state") in _HELD:
                    blocks[_bits(block.get("address", at))] = (block["size"], block["state"])
                at += block["size"]
        return blocks

    def _peak_reserved(self) -> int | None:
        """From the end backwards: what was mapped is taken off, what was given back is added."""
        level = peak = self.found.reserved_bytes or 0
        for entry in reversed(self.entries):
            level -= entry["size"] if entry["action"] in _GROWN else 0
            level += entry["size"] if entry["action"] in _SHRUNK else 0
            peak = max(peak, level)
        return peak if len(self.entries) > 1 else None

    def _peak_allocated(self) -> int | None:
        """Forwards, with every block's size; None where the state before the first entry does not give it."""
        before = self._before()
        if before is None or any((self.settings.get("roundup_power2_divisions") or {}).values()):
            return None
        ends_at = (
            _FREED
            if any(e["action"] == "free_requested" for e in self.entries)
            else ("free_completed", "free")
        )
        ends_at = ("free_requested", "free") if "free_requested" in ends_at else ends_at
        space = _Space(self._segments_before(), before, self.settings, self.expandable)
        allocated = {a: size for a, size in before.items() if self.end.get(a, (0, ""))[1] != _HELD[1]}
        level = peak = sum(allocated.values())
        born: dict[int, int] = {}
        for entry in self.entries:
            action, address = entry["action"], _bits(entry.get("addr", 0))
            if action == "alloc":
                born[address] = allocated[address] = space.take(address, entry["size"])
                level += allocated[address]
                peak = max(peak, level)
            elif action in ends_at:
                level -= allocated.pop(address, 0)
            if action in ("free_completed", "free"):
                space.give(address)
            elif action == "segment_alloc":
                space.segments[address] = entry["size"]
            elif action == "segment_free":
                space.segments.pop(address, None)
        stated = {address: size for address, (size, _) in self.end.items() if address in born}
        if space.foreign or any(born[address] != size for address, size in stated.items()):
            return None  # another allocator: it cuts its blocks by other rules
        return peak if set(allocated) == {a for a, (_, s) in self.end.items() if s == _HELD[0]} else None

    def _before(self) -> dict[int, int] | None:
        """Address and size of what was there before the first entry; None where a size cannot be known."""
        before: dict[int, int] = {}
        opened: set[int] = set()
        seen: set[int] = set()
        if not any(entry["action"] in ("alloc", *_FREED) for entry in self.entries):
            return None
        for entry in self.entries:
            address = _bits(entry.get("addr", 0))
            if entry["action"] == "alloc":
                if address in opened:
                    return None  # its free is missing
                opened.add(address)
                seen.add(address)
            elif entry["action"] in _FREED:
                if address not in seen:
                    seen.add(address)
                    before[address] = _rounded(entry["size"])
                    if before[address] > _SMALL and not self.expandable:
                        return None
                    if entry["action"] == "free_completed" and "free_requested" in self.found.actions:
                        return None  # it waited for another stream when the history began
                opened.discard(address)
        before.update({address: size for address, (size, _) in self.end.items() if address not in seen})
        return before

    def _segments_before(self) -> dict[int, int]:
        ours = {_bits(entry.get("addr", 0)) for entry in self.entries if entry["action"] == "segment_alloc"}
        found = {_bits(s.get("address", 0)): s["total_size"] for s in self.segments}
        found = {address: size for address, size in found.items() if address not in ours}
        for entry in self.entries:
            address = _bits(entry.get("addr", 0))
            if entry["action"] == "segment_free" and address not in ours:
                found[address] = entry["size"]
        return found


class _Space:
    """What is taken of the reserved memory, and how a request is cut from what is free behind its address."""

    def __init__(self, segments: dict[int, int], taken: dict[int, int], settings: Entry, exact: bool) -> None:
        self.segments = segments
        self.exact = exact
        self.starts = sorted(taken)
        limit = settings.get("max_split_size")
        self.foreign = False
        """A small block lay in a segment of the large pool: this allocator rounds otherwise."""
        self.max_split = limit if type(limit) is int and limit > 0 else 1 << 62

    def take(self, address: int, requested: int) -> int:
        """Take a block; its size."""
        size = _rounded(requested)
        if size <= _SMALL and any(s <= address < s + n and n > 2 * _SMALL for s, n in self.segments.items()):
            self.foreign = self.foreign or not self.exact
        at = bisect_right(self.starts, address)
        if size > _SMALL and not self.exact:
            inside = [
                (start, start + length)
                for start, length in self.segments.items()
                if start <= address < start + length
            ]
            if inside:
                behind = min([inside[0][1], *self.starts[at : at + 1]])
                rest = behind - address - size
                if rest > 0 and (rest <= _SMALL or size >= self.max_split):
                    size += rest
        insort(self.starts, address)
        return size

    def give(self, address: int) -> None:
        """A block can be used again."""
        at = bisect_right(self.starts, address) - 1
        if at >= 0 and self.starts[at] == address:
            del self.starts[at]


def _entries(trace: Any) -> list[Entry]:
    """The entries that are whole: a known action, a size, and an address where there is one."""
    kept = []
    for entry in trace if isinstance(trace, list | tuple) else ():
        if not isinstance(entry, dict) or entry.get("action") not in _ACTIONS:
            continue
        addressed = entry["action"] in _NO_ADDRESS or type(entry.get("addr")) is int
        if addressed and (_is_size(entry.get("size")) or entry["action"] == "snapshot"):
            kept.append(entry)
    return kept


def _refuse_aliases(parts: list[Any]) -> None:
    if len({id(part) for part in parts if part}) < sum(bool(part) for part in parts):
        raise UnreadError("it names parts of itself again and again")


def _is_segment(value: Any) -> bool:
    whole = (
        isinstance(value, dict) and _is_size(value.get("total_size")) and type(value.get("address", 0)) is int
    )
    return whole and type(value.get("device", 0)) is int and 0 <= value.get("device", 0) < _MOST_DEVICES


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_BYTES


def _rounded(requested: int) -> int:
    return max(-(-requested // 512), 1) * 512


def _bits(address: Any) -> int:
    """A pointer, written signed or unsigned, as its 64 bits."""
    return address & (1 << 64) - 1 if type(address) is int else 0
