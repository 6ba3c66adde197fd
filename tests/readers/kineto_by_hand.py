"""What a Kineto file holds, read a second way: json, Decimal and loops, sharing no code with the reader."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

KERNEL, COPY, MEMSET = ("kernel",), ("gpu_memcpy", "memcpy"), ("gpu_memset", "memset")
CALL = ("cuda_runtime", "cuda_driver", "runtime", "mtia_runtime")


def load(path: Path) -> dict:
    """The document with every number that has a fraction kept as it is written."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    document = json.loads(data, parse_float=str)
    return document if isinstance(document, dict) else {"traceEvents": document}


def of_category(document: dict, categories: tuple[str, ...]) -> list[dict]:
    events = [e for e in document["traceEvents"] if isinstance(e, dict)]
    return [e for e in events if e.get("ph") == "X" and str(e.get("cat")).lower() in categories]


def link_of(document: dict) -> str:
    """The argument that calls and their device work share."""
    shared = of_category(document, (*KERNEL, *COPY, *MEMSET, *CALL))
    return "correlation" if any("correlation" in e.get("args", {}) for e in shared) else "External id"


def ns(value: object) -> int:
    scaled = Decimal(str(value)) * 1000
    assert scaled == int(scaled), value
    return int(scaled)


def intervals(events: list[dict]) -> list[tuple[int, int]]:
    return [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in events]


def union(spans: list[tuple[int, int]]) -> int:
    total, end = 0, None
    for start, stop in sorted(spans):
        begin = start if end is None else max(start, end)
        total += max(0, stop - begin)
        end = stop if end is None else max(end, stop)
    return total


def sums_by_name(events: list[dict]) -> Counter:
    sums: Counter = Counter()
    for event in events:
        sums[event["name"]] += ns(event["dur"])
    return sums
