"""CUDA memory snapshots (`torch.cuda.memory._dump_snapshot`, torch 2.0 to today) to a `MemoryHistory`.

Also read: the bare list of segments of `torch.cuda.memory_snapshot()`, the bytes of TorchScript's pickler that
OOM observers write, and JSON dumps of either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from profkit.errors import ReadError
from profkit.model import Finding, Severity, Source
from profkit.model.memory_history import MemoryHistory
from profkit.readers.snapshot.columns import Columns
from profkit.readers.snapshot.pickled import load

__all__ = ["history_of", "read_snapshot"]

_RECORD = "Record with torch.cuda.memory._record_memory_history() and dump with _dump_snapshot(path)."
_LARGEST_SETTING = 1 << 63


def read_snapshot(data: bytes | bytearray | memoryview, name: str) -> MemoryHistory:
    """Read a CUDA memory snapshot.

    Args:
        data: The whole file, decompressed: a pickle of any protocol, or JSON.
        name: What messages call the file; only its base name is kept.

    Raises:
        ReadError: It is no snapshot, it is cut off, nothing in it can be used, or it is a pickle that holds more
            than plain data (the forbidden global is named; nothing of it was run).
    """
    start = bytes(data[:64]).lstrip(b"\xef\xbb\xbf \t\r\n")
    return history_of(_json(data, name) if start[:1] in (b"{", b"[") else load(data, name), name)


def history_of(snapshot: Any, name: str) -> MemoryHistory:
    """A snapshot that is already plain objects, as ``torch.cuda.memory._snapshot()`` returns it.

    Raises:
        ReadError: Nothing in it can be used.
    """
    if isinstance(snapshot, list):
        snapshot = {"segments": snapshot}
    if not isinstance(snapshot, dict) or not snapshot.keys() & {"segments", "device_traces"}:
        raise ReadError(name, "it holds no memory snapshot: no segments and no device_traces", _RECORD)
    columns = Columns()
    events = columns.events(snapshot.get("device_traces"))
    segments, blocks = columns.segments(snapshot.get("segments"))
    segments_known = isinstance(snapshot.get("segments"), list | tuple)
    annotations = columns.annotations(snapshot.get("external_annotations"))
    frames, stacks = columns.stacks.tables()
    columns.dropped["malformed_frames"] += columns.stacks.malformed_frames
    dropped = {reason: count for reason, count in columns.dropped.items() if count}
    if dropped and not len(events) and not len(segments):
        raise ReadError(name, f"it contains nothing usable: {', '.join(_told(dropped))}", _RECORD)
    return MemoryHistory(
        source=Source(_base_name(name), "snapshot", "torch.cuda.memory"),
        strings=columns.strings.texts,
        devices=[int(d) for d in np.union1d(events.device, segments.device)],
        events=events,
        segments=segments,
        blocks=blocks,
        segments_known=segments_known,
        annotations=annotations,
        frames=frames,
        stacks=stacks,
        settings=_settings(snapshot.get("allocator_settings")),
        findings=_findings(dropped),
        dropped=dropped,
    )


def _json(data: bytes | bytearray | memoryview, name: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise ReadError(name, f"it is broken JSON ({error})", _RECORD) from None
    except RecursionError:
        raise ReadError(name, "it is nested too deeply for a snapshot", _RECORD) from None


def _base_name(name: str) -> str:
    return PureWindowsPath(PurePosixPath(name).name).name or name


def _settings(settings: Any) -> Mapping[str, Any]:
    """Settings of plain types; the text of the environment variable too, which holds no secret."""
    if not isinstance(settings, dict):
        return {}
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        if not isinstance(key, str):
            continue
        if isinstance(value, dict):
            kept[key] = {k: v for k, v in value.items() if isinstance(k, str) and _whole(v)}
        elif _plain(value):
            kept[key] = value
    return kept


def _plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) < 1000
    return isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value)) or _whole(value)


def _whole(value: Any) -> bool:
    return type(value) is int and abs(value) <= _LARGEST_SETTING


def _told(dropped: Mapping[str, int]) -> list[str]:
    return [f"{count} {reason.replace('_', ' ')}" for reason, count in dropped.items()]


def _findings(dropped: Mapping[str, int]) -> list[Finding]:
    findings = []
    malformed = {reason: count for reason, count in dropped.items() if reason != "unknown_actions"}
    if malformed:
        findings.append(
            Finding(
                "malformed",
                Severity.WARNING,
                count=sum(malformed.values()),
                params={"what": _told(malformed)},
            )
        )
    if count := dropped.get("unknown_actions"):
        findings.append(Finding("unknown-actions", Severity.INFO, count=count))
    return findings
