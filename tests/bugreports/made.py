"""Small traces made by hand, in microseconds as they are written."""

import json
from pathlib import Path
from typing import Any

import profkit
from profkit.model.report import Report

Event = dict[str, Any]


def event(cat: str, name: str, ts: Any, dur: Any, tid: Any = 1, **args: Any) -> Event:
    """A complete event; ids of processes and threads are those of torch.profiler."""
    pid = 0 if tid == 7 else 100
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def launch(ts: Any, correlation: Any, name: str = "cudaLaunchKernel", dur: Any = 2, **more: Any) -> Event:
    return event("cuda_runtime", name, ts, dur, correlation=correlation, **more)


def kernel(ts: Any, dur: Any, correlation: Any = 0, name: str = "k", stream: Any = 7, **more: Any) -> Event:
    return event(
        "kernel", name, ts, dur, tid=7, device=0, context=1, stream=stream, correlation=correlation, **more
    )


def op(name: str, ts: Any, dur: Any, tid: int = 1, **args: Any) -> Event:
    return event("cpu_op", name, ts, dur, tid, **args)


def mark(name: str, ts: Any, dur: Any, tid: int = 1) -> Event:
    return event("user_annotation", name, ts, dur, tid)


def written(folder: Path, *events: Event, name: str = "trace.json", **header: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({**header, "traceEvents": list(events)}))
    return path


def analysed(folder: Path, *events: Event, **header: Any) -> Report:
    return profkit.analyze(written(folder, *events, **header)).document


def codes(result: Report) -> dict[str, int]:
    return {finding.code: finding.count for finding in result.health.findings}


def by_name(rows: list[dict[str, Any]], value: str) -> dict[str, Any]:
    return {row.name: getattr(row, value) for row in rows}
