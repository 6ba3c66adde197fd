#!/usr/bin/env python3
"""Build a large CUDA memory snapshot by replaying a real one's trace again.

Between two replicas every allocation that is still live is freed (in address
order), so that the next replica may allocate at the same addresses: the trace
stays one valid history, and after the last replica the live blocks are those
of the source's ``segments``, which are kept.  ``segment_alloc`` entries occur
in the first replica only (the pool stays mapped).  Times move on by one period
per replica, and so do annotations, which tell steps.  Entries that share one ``frames`` list in the source share one
new list in each replica, as torch writes them; the frame dicts are shared.

``--keep tail`` cuts to the newest N entries, as torch's ring buffer
(``max_entries``) does: frees then occur whose allocation was dropped.
``--keep all`` (the default) stops at the end of the replica that reaches N.

The source is unpickled: use only files you trust.  Deterministic.

    make_snapshot.py SOURCE.pickle[.gz] OUT.pickle --entries 100000 [--keep tail]
"""

from __future__ import annotations

import argparse
import gzip
import pickle
from pathlib import Path


def period_of(trace: list[dict], gap_us: int) -> int:
    times = [entry["time_us"] for entry in trace if "time_us" in entry]
    return max(times) - min(times) + gap_us


def later(annotations: list[dict], periods: int, period: int) -> list[dict]:
    return [{**each, "time_us": each["time_us"] + k * period} for k in range(periods) for each in annotations]


def replicate(trace: list[dict], wanted: int, gap_us: int) -> list[dict]:
    times = [entry["time_us"] for entry in trace if "time_us" in entry]
    period = period_of(trace, gap_us)
    live: dict[int, dict] = {}
    for entry in trace:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry
        elif entry["action"] == "free_completed":
            live.pop(entry["addr"], None)
    closing = [live[addr] for addr in sorted(live)]

    out = list(trace)
    k = 0
    while len(out) < wanted:
        k += 1
        end = max(times) + (k - 1) * period
        for entry in closing:
            for action in ("free_requested", "free_completed"):
                out.append({**entry, "action": action, "time_us": end + 1, "frames": out_frames(entry)})
        lists: dict[int, list] = {}
        for entry in trace:
            if entry["action"].startswith("segment"):
                continue
            copy = dict(entry)
            copy["time_us"] = entry["time_us"] + k * period
            if "frames" in entry:
                frames = entry["frames"]
                copy["frames"] = lists.setdefault(id(frames), list(frames))
            out.append(copy)
    return out


def out_frames(entry: dict) -> list:
    return entry.get("frames", [])


def make(path: str | Path, out: str | Path, *, entries: int, keep: str = "all", gap_us: int = 1000) -> int:
    """Write the long snapshot.

    Args:
        path: The real one.
        out: Where the long one goes.
        entries: How many trace entries it shall have.
        keep: ``all``, or ``tail`` for exactly the newest ones.
        gap_us: Idle time between two replicas.

    Returns:
        How many entries it has.
    """
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rb") as handle:
        snapshot = pickle.load(handle)
    traces = snapshot["device_traces"]
    device = max(range(len(traces)), key=lambda i: len(traces[i]))
    source = traces[device]
    trace = replicate(source, entries, gap_us)
    if snapshot.get("external_annotations"):
        moved = (trace[-1]["time_us"] - source[-1]["time_us"]) // (period := period_of(source, gap_us))
        snapshot["external_annotations"] = later(snapshot["external_annotations"], moved + 1, period)
    traces[device] = trace[-entries:] if keep == "tail" else trace
    with Path(out).open("wb") as handle:
        pickle.dump(snapshot, handle)
    return len(traces[device])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("out")
    parser.add_argument("--entries", type=int, required=True)
    parser.add_argument("--keep", choices=("all", "tail"), default="all")
    parser.add_argument("--gap-us", type=int, default=1000)
    args = parser.parse_args()
    entries = make(args.source, args.out, entries=args.entries, keep=args.keep, gap_us=args.gap_us)
    print(f"{args.out}: {entries} entries, {Path(args.out).stat().st_size} bytes")


if __name__ == "__main__":
    main()
