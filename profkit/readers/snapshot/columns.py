"""Rows of a snapshot, as torch wrote them, to checked columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import PHASE_MARK, UNKNOWN, IntColumn
from profkit.model.memory_history import Action, AllocatorEvents, Annotations, Blocks, BlockState, Segments
from profkit.readers.snapshot.stacks import CleanStrings, StackTable

__all__ = ["Columns", "integers"]

_ACTIONS = {action.name.lower(): action for action in Action}
_STATES = {
    "inactive": BlockState.INACTIVE,
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING_FREE,
    "active_awaiting_free": BlockState.PENDING_FREE,
}
_NS_PER_US = 1_000
_LATEST_US = (1 << 63) // _NS_PER_US - 1
_MOST_BYTES = 1 << 50
"""A petabyte: sums of sizes over any history that fits into memory stay far from overflow."""
_MOST_DEVICES = 1 << 7
"""torch numbers devices with a signed byte. Phases are placed on every device: more would cost their product."""


def integers(values: Sequence[Any], low: int, high: int) -> tuple[IntColumn, NDArray[np.bool_]]:
    """Values that should be whole numbers of ``low..high``, and which of them are; the others become -1."""
    if set(map(type, values)) <= {int}:
        try:
            column = np.array(values, np.int64)
            good = (column >= low) & (column <= high)
            return np.where(good, column, UNKNOWN), good
        except OverflowError:
            pass
    good = np.fromiter((type(v) is int and low <= v <= high for v in values), bool, len(values))
    plain = (v if fine else UNKNOWN for v, fine in zip(values, good.tolist(), strict=True))
    return np.fromiter(plain, np.int64, len(values)), good


def _pointers(values: Sequence[Any]) -> tuple[IntColumn, NDArray[np.bool_]]:
    """64-bit pointers, written signed or unsigned, as signed integers of the same bits."""
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64), np.ones(len(values), bool)
        except OverflowError:
            pass
    good = np.fromiter((type(v) is int and -(1 << 63) <= v < 1 << 64 for v in values), bool, len(values))
    bits = (v & ((1 << 64) - 1) if fine else 0 for v, fine in zip(values, good.tolist(), strict=True))
    return np.fromiter(bits, np.uint64, len(values)).view(np.int64), good


def _dicts(rows: Any) -> tuple[list[dict[str, Any]], int]:
    """The dicts of a list, and how many other things stood in it."""
    if not isinstance(rows, list | tuple):
        return [], int(rows is not None)
    if set(map(type, rows)) <= {dict}:
        return list(rows), 0
    kept = [row for row in rows if isinstance(row, dict)]
    return kept, len(rows) - len(kept)


def _once(rows: list[Any]) -> list[Any]:
    """Without repetitions of one object: a pickle can name a large part of itself a million times."""
    return list({id(row): row for row in rows}.values())


def _codes(values: Sequence[Any], known: dict[str, Any]) -> IntColumn:
    """Enumerated texts to their numbers; -1 for other texts, -2 for what is no text."""
    if set(map(type, values)) <= {str}:
        return np.fromiter((known.get(v, UNKNOWN) for v in values), np.int8, len(values))
    coded = (known.get(v, UNKNOWN) if isinstance(v, str) else -2 for v in values)
    return np.fromiter(coded, np.int8, len(values))


class Columns:
    """Collects the tables of one snapshot; what is malformed is left out and counted in ``dropped``."""

    def __init__(self) -> None:
        self.strings = CleanStrings()
        self.stacks = StackTable(self.strings)
        self.dropped: Counter[str] = Counter()

    def events(self, traces: Any) -> AllocatorEvents:
        """``device_traces``: one list of entries for each device."""
        if not isinstance(traces, list | tuple):
            self.dropped["malformed_entries"] += int(traces is not None)
            return AllocatorEvents.empty()
        filled = [(device, trace) for device, trace in enumerate(traces[:_MOST_DEVICES]) if trace]
        distinct = {id(trace): (trace, device) for device, trace in reversed(filled)}
        self.dropped["malformed_entries"] += max(0, len(traces) - _MOST_DEVICES) + len(filled) - len(distinct)
        tables = [self._trace(trace, device) for trace, device in reversed(distinct.values())]
        return _joined(tables) if tables else AllocatorEvents.empty()

    def _trace(self, trace: Any, device: int) -> AllocatorEvents:
        rows, bad = _dicts(trace)
        action = _codes([row.get("action") for row in rows], _ACTIONS)
        size, size_good = integers([row.get("size") for row in rows], 0, _MOST_BYTES)
        address, address_good = _pointers([row.get("addr", 0) for row in rows])
        lifeless = np.isin(action, (Action.OOM, Action.SNAPSHOT))
        needs_address = (action >= 0) & ~lifeless
        present = np.fromiter(("addr" in row for row in rows), bool, len(rows))
        malformed = (action == -2) | ((action >= 0) & ~size_good & (action != Action.SNAPSHOT))
        malformed |= needs_address & ~(address_good & present)
        self.dropped["malformed_entries"] += bad + int(malformed.sum())
        self.dropped["unknown_actions"] += int(((action == UNKNOWN) & ~malformed).sum())
        time_us, _ = integers([row.get("time_us", UNKNOWN) for row in rows], 0, _LATEST_US)
        stream, _ = _pointers([row.get("stream", 0) for row in rows])
        device_free = np.full(len(rows), UNKNOWN, np.int64)
        for row in np.flatnonzero(action == Action.OOM).tolist():
            device_free[row] = integers([rows[row].get("device_free")], 0, _MOST_BYTES)[0][0]
        table = AllocatorEvents.of(
            len(rows),
            time_ns=np.where(time_us >= 0, time_us * _NS_PER_US, UNKNOWN),
            device=np.full(len(rows), device),
            action=action,
            address=np.where(lifeless, 0, address),
            bytes=np.maximum(size, 0),
            stream=stream,
            stack=self.stacks.ids([row.get("frames") for row in rows]),
            device_free=device_free,
            category=self._texts(rows, "category"),
            metadata=self._texts(rows, "user_metadata"),
        )
        keep = (action >= 0) & ~malformed
        return table if keep.all() else table.take(keep)

    def _texts(self, rows: list[dict[str, Any]], key: str) -> IntColumn | None:
        values = [row.get(key) for row in rows]
        try:
            distinct = set(values)
        except TypeError:  # an unhashable value
            values = [v if isinstance(v, str) else None for v in values]
            distinct = set(values)
        if distinct <= {None, ""}:
            return None
        ids = {v: self.strings.id(v) if v else UNKNOWN for v in distinct}
        return np.fromiter((ids[v] for v in values), np.int32, len(values))

    def segments(self, segments: Any) -> tuple[Segments, Blocks]:
        """``segments`` with their ``blocks``."""
        rows, bad = _dicts(segments)
        rows, repeated = _once(rows), len(rows)
        bad += repeated - len(rows)
        size, good = integers([row.get("total_size") for row in rows], 0, _MOST_BYTES)
        device, device_good = integers([row.get("device", 0) for row in rows], 0, _MOST_DEVICES - 1)
        address, address_good = _pointers([_address(row) for row in rows])
        keep = good & device_good & address_good
        self.dropped["malformed_segments"] += bad + int((~keep).sum())
        kept = [row for row, fine in zip(rows, keep.tolist(), strict=True) if fine]
        pools = [_pool(row.get("segment_pool_id")) for row in kept]
        table = Segments.of(
            len(kept),
            device=device[keep],
            address=address[keep],
            bytes=size[keep],
            stream=_pointers([row.get("stream", 0) for row in kept])[0],
            large=_codes([row.get("segment_type") for row in kept], {"small": 0, "large": 1}).clip(
                min=UNKNOWN
            ),
            pool=[self.strings.id(pool) for pool in pools],
            expandable=[_flag(row.get("is_expandable")) for row in kept],
            stack=self.stacks.ids([row.get("frames") for row in kept]),
        )
        return table, self._blocks(kept, table)

    def _blocks(self, segments: list[dict[str, Any]], table: Segments) -> Blocks:
        rows: list[dict[str, Any]] = []
        owner: list[int] = []
        seen: set[int] = set()
        for index, segment in enumerate(segments):
            written = segment.get("blocks")
            blocks, bad = ([], 1) if id(written) in seen else _dicts(written)
            seen.add(id(written))
            self.dropped["malformed_blocks"] += bad
            rows.extend(blocks)
            owner.extend([index] * len(blocks))
        parent = np.array(owner, np.int64)
        size, good = integers([row.get("size") for row in rows], 0, _MOST_BYTES)
        state = _codes([row.get("state") for row in rows], _STATES)
        keep = good & (state >= 0)
        self.dropped["malformed_blocks"] += int((~keep).sum())
        # Before torch 2.1 a block had no address: blocks stand in order and fill their segment.
        before = np.cumsum(np.maximum(size, 0)) - np.maximum(size, 0)
        first = np.searchsorted(parent, parent)
        derived = table.address[parent] + before - before[first] if len(rows) else before
        address, address_good = _pointers([row.get("address") for row in rows])
        return Blocks.of(
            len(rows),
            segment=parent,
            device=table.device[parent],
            address=np.where(address_good, address, derived),
            bytes=size,
            requested_bytes=integers([_requested(row) for row in rows], 0, _MOST_BYTES)[0],
            state=state,
            stack=self.stacks.ids([_frames(row) for row in rows]),
        ).take(keep)

    def annotations(self, annotations: Any) -> Annotations:
        """``external_annotations``: START and END rows, joined by name and nesting."""
        rows, bad = _dicts(annotations)
        time_us, good = integers([row.get("time_us") for row in rows], 0, _LATEST_US)
        device, _ = integers([row.get("device", 0) for row in rows], 0, _MOST_DEVICES)
        self.dropped["malformed_annotations"] += bad
        stretches: list[list[int]] = []
        opened: dict[tuple[int, int], list[int]] = {}
        for index, row in enumerate(rows):
            name, stage = self.strings.id(row.get("name")), row.get("stage")
            if not good[index] or name == UNKNOWN or stage not in ("START", "END"):
                self.dropped["malformed_annotations"] += 1
                continue
            time_ns, key = int(time_us[index]) * _NS_PER_US, (int(device[index]), name)
            if stage == "START":
                opened.setdefault(key, []).append(len(stretches))
                stretches.append([time_ns, UNKNOWN, *key])
            elif opened.get(key):
                stretches[opened[key].pop()][1] = time_ns
            else:
                self.dropped["malformed_annotations"] += 1
        return self._stretches(stretches)

    def _stretches(self, stretches: list[list[int]]) -> Annotations:
        columns = np.array(stretches, np.int64).reshape(-1, 4).T
        names = [self.strings.texts[i] for i in columns[3].tolist()]
        return Annotations.of(
            len(stretches),
            start_ns=columns[0],
            end_ns=columns[1],
            device=columns[2],
            name=[self.strings.id(name.removeprefix(PHASE_MARK)) for name in names],
            marked=[name.startswith(PHASE_MARK) for name in names],
        )


def _joined(tables: list[AllocatorEvents]) -> AllocatorEvents:
    if len(tables) == 1:
        return tables[0]
    columns = {key: np.concatenate([getattr(t, key) for t in tables]) for key in vars(tables[0])}
    return AllocatorEvents.of(sum(map(len, tables)), **columns)


def _address(segment: dict[str, Any]) -> Any:
    return segment.get("address", 0)


def _flag(value: Any) -> int:
    return int(value) if isinstance(value, bool) else UNKNOWN


def _pool(value: Any) -> str | None:
    if isinstance(value, list | tuple) and len(value) == 2 and set(map(type, value)) == {int}:
        return f"{value[0]},{value[1]}"
    return None


def _history(block: dict[str, Any]) -> dict[str, Any]:
    """The newest entry of the list that blocks had before torch 2.1."""
    history = block.get("history")
    newest = history[0] if isinstance(history, list) and history else None
    return newest if isinstance(newest, dict) else {}


def _requested(block: dict[str, Any]) -> Any:
    return block["requested_size"] if "requested_size" in block else _history(block).get("real_size")


def _frames(block: dict[str, Any]) -> Any:
    return block["frames"] if "frames" in block else _history(block).get("frames")
