"""Turn what `record.sh` left into `data/`: small files without paths, environment or host names.

    collect.py OUT DATA      adds to DATA, so a study can be recorded in parts; the card is that of the first part

OUT may also be a folder that was collected elsewhere: then its files are added to DATA.

Kineto traces, nsys exports (NSYS: the command to export with), ncu tables with the columns of one kernel a row.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COUNTERS = {
    "duration_ns": "gpu__time_duration.sum",
    "sm_throughput_pct": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_throughput_pct": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory_throughput_pct": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_throughput_pct": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor_pipe_pct": "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    "dram_bytes": "dram__bytes.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
}
MARKER = "spin_kernel(long)"
CLAIMS = ("name", "kind", "truth", "why", "counters", "held_out", "blind")
REFUSED: list[str] = []
"""What could not be stored; the rest is, and the exit code is 1."""
NOT_KEPT = ("name", "mode", "took_s", "started")

NAMES = {  # the columns of an export that hold ids of strings
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("nameId",),
    "CUPTI_ACTIVITY_KIND_KERNEL": ("demangledName", "shortName", "mangledName"),
    "NVTX_EVENTS": ("textId",),
    "ThreadNames": ("nameId",),
    "PROFILER_OVERHEAD": ("nameId",),
}
KEPT = {
    *NAMES,
    "StringIds",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUDA_GRAPH_NODE_EVENTS",
    "ANALYSIS_DETAILS",
    "TARGET_INFO_SYSTEM_ENV",
    "TARGET_INFO_SESSION_START_TIME",
    "TARGET_INFO_GPU",
    "TARGET_INFO_CUDA_CONTEXT_INFO",
    "TARGET_INFO_CUDA_STREAM",
    "META_DATA_CAPTURE",
    "META_DATA_EXPORT",
    "ENUM_CUDA_MEMCPY_OPER",
    "ENUM_CUDA_MEM_KIND",
    "ENUM_CUPTI_SYNC_TYPE",
}
SAFE_FACTS = (
    "CpuCores",
    "CpuArchitecture",
    "CpuDescription",
    "NvDriverVersion",
    "OsDescription",
    "CudaDriverVersion",
)
UNSAFE = re.compile(r"ARGUMENT|ENVIRONMENT|WORKING_DIR|USER|DISPLAY_NAME|UUID|PATH|HOST$|FILE$|TIME_LOCAL")
LEAK = re.compile(rb"/(?:tmp|root|home|work|opt|usr)/|HOME=|PATH=")


def clean(export: Path) -> None:
    """Keep what happened on the GPU and in the recorded threads; drop everything about the machine."""
    base = sqlite3.connect(export)
    tables = {n for (n,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in tables - KEPT:
        base.execute(f'DROP TABLE "{table}"')
    threads = " UNION ".join(
        f"SELECT globalTid FROM {t}" for t in ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS") if t in tables
    )
    if "ThreadNames" in tables:
        base.execute(f"DELETE FROM ThreadNames WHERE globalTid NOT IN ({threads})")
    used = " UNION ".join(
        f"SELECT {column} FROM {t} WHERE {column} IS NOT NULL"
        for t, columns in NAMES.items()
        if t in tables
        for column in columns
        if column in {c[1] for c in base.execute(f"PRAGMA table_info({t})")}
    )
    base.execute(f"DELETE FROM StringIds WHERE id NOT IN ({used})")
    base.execute(f"DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name NOT IN {SAFE_FACTS}")
    base.execute("UPDATE TARGET_INFO_GPU SET uuid = '00000000-0000-0000-0000-000000000000'")
    base.create_function("unsafe", 1, lambda name: bool(UNSAFE.search(name)))
    for table in ("META_DATA_CAPTURE", "META_DATA_EXPORT"):
        base.execute(f"DELETE FROM {table} WHERE unsafe(name)")
    base.commit()
    base.execute("PRAGMA page_size = 1024")
    base.execute("VACUUM")
    base.close()


def refuse(name: str, reason: str) -> None:
    print(f"{name}: {reason}", file=sys.stderr)
    REFUSED.append(name)


def store(target: Path, content: bytes) -> None:
    found = LEAK.search(content)
    if found:
        around = content[max(0, found.start() - 40) : found.end() + 40]
        refuse(target.name, f"holds {around!r}; it must not be stored")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(content, 9, mtime=0))


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def started(path: Path) -> list[dict[str, object]]:
    """The workloads that came as far as their recording, in order; none where the file is missing."""
    return [row for row in rows_of(path) if row.get("started", "error" not in row)] if path.exists() else []


def timelines(out: Path, data: Path, mode: str) -> None:
    """Export report N, the Nth capture range, under the name of the Nth workload that opened one."""
    ranges = started(out / mode / f"{mode}.jsonl")
    whole = [(number, str(row["name"])) for number, row in enumerate(ranges, 1) if "error" not in row]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda each: timeline(out / mode, *each, data / mode), whole):
            pass


def timeline(folder: Path, number: int, name: str, data: Path) -> None:
    """Export one report and keep what may be kept."""
    with tempfile.TemporaryDirectory() as scratch:
        export = Path(scratch) / f"{name}.sqlite"
        command = [os.environ.get("NSYS", "nsys"), "export", "-q", "true", "--type", "sqlite"]
        command += ["-o", str(export), str(folder / f"report.{number}.nsys-rep")]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode or not export.exists():
            refuse(export.name, f"report {number} was not exported: {done.stderr.strip()[-200:]}")
            return
        try:
            clean(export)
        except sqlite3.Error as error:
            refuse(export.name, f"report {number} could not be cleaned: {error}")
            return
        store(data / f"{export.name}.gz", export.read_bytes())


def traces(out: Path, data: Path) -> None:
    for path in sorted((out / "kineto").glob("*.json.gz")):
        text = gzip.decompress(path.read_bytes()).decode()
        text = re.sub(r'("(?:traceName|kernel_file)": ")[^"]*/', r"\1", text)
        store(data / "kineto" / path.name, text.encode())


def sections(path: Path, order: list[str]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The rows of each workload in ncu's list: a marker kernel precedes each."""
    table = list(csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode())))
    if any(
        table[0][metric] not in ("", "%", "ns", "byte") for metric in COUNTERS.values() if metric in table[0]
    ):
        raise ValueError(f"{path.name}: exported without --print-units base")
    starts = [i for i, row in enumerate(table) if row["Kernel Name"].endswith(MARKER)]
    if len(starts) != len(order):
        raise ValueError(f"{path.name}: {len(starts)} markers for {len(order)} workloads")
    for name, start, end in zip(order, starts, [*starts[1:], len(table)], strict=True):
        yield name, table[start + 1 : end]


def number(text: str) -> float | int:
    value = float(text.replace(",", ""))
    return int(value) if value.is_integer() and abs(value) > 100 else round(value, 2)


def counters(out: Path, data: Path) -> None:
    """One table a workload: cold caches, and beside them the bytes with the caches as they were."""
    lists = {}
    for name in ("cold", "warm"):
        if not (out / "ncu" / f"{name}.csv.gz").exists():
            lists[name] = {}
            continue
        order = started(out / "ncu" / f"{name}.jsonl")
        broken = {str(row["name"]) for row in order if "error" in row}
        found = sections(out / "ncu" / f"{name}.csv.gz", [str(row["name"]) for row in order])
        lists[name] = {workload: rows for workload, rows in found if workload not in broken}
    for workload, cold in lists["cold"].items():
        warm = lists["warm"].get(workload, [])
        same = [r["Kernel Name"] for r in warm] == [r["Kernel Name"] for r in cold]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ["kernel", "grid", "block", *COUNTERS, "warm_dram_read_bytes", "warm_dram_write_bytes"]
        )
        for index, row in enumerate(cold):
            extra = (
                [number(warm[index][COUNTERS[c]]) for c in ("dram_read_bytes", "dram_write_bytes")]
                if same
                else ["", ""]
            )
            values = [number(row[metric]) for metric in COUNTERS.values()]
            writer.writerow([row["Kernel Name"], row["Grid Size"], row["Block Size"], *values, *extra])
        store(data / "ncu" / f"{workload}.csv.gz", text.getvalue().encode())


def describe(data: Path) -> None:
    """List in `workloads.json` what was recorded in every way that its analysis needs; rows there keep their place."""
    from record import REGISTRY  # it needs torch, the analysis does not

    path = data / "workloads.json"
    rows = {row["name"]: row for row in json.loads(path.read_text())} if path.exists() else {}
    for name, work in REGISTRY.items():
        needed = {"kineto": "json", "nsys": "sqlite"} | ({"ncu": "csv"} if work.counters else {})
        missing = [m for m, kind in needed.items() if not (data / m / f"{name}.{kind}.gz").exists()]
        if not missing:
            rows[name] = {claim: getattr(work, claim) for claim in CLAIMS}
        elif len(missing) < len(needed):
            print(f"{name} is left out: no recording by {', '.join(missing)}", file=sys.stderr)
    path.write_text(json.dumps(list(rows.values()), indent=1) + "\n")


def merge(collected: Path, data: Path) -> None:
    """Add what was collected on another machine, looked through once more."""
    for path in sorted(collected.glob("*/*.gz")):
        store(data / path.parent.name / path.name, gzip.decompress(path.read_bytes()))
    keep_times(data, json.loads((collected / "plain.json").read_text()))
    card = collected / "environment.json"
    if card.exists():  # that of the first part stays what the README tells of
        (data / "blind_environment.json").write_text(card.read_text())
    describe(data)
    sys.exit(1 if REFUSED else 0)


def keep_times(data: Path, times: dict[str, object]) -> None:
    path = data / "plain.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | times, indent=1) + "\n")


def main() -> None:
    out, data = Path(sys.argv[1]), Path(sys.argv[2])
    data.mkdir(parents=True, exist_ok=True)
    if (out / "workloads.json").exists():
        merge(out, data)
        return
    traces(out, data)
    for mode in ("nsys", "emit"):
        timelines(out, data, mode)
    try:
        counters(out, data)
    except ValueError as error:
        refuse("ncu", str(error))
    rates = out / "rates.json"
    if rates.exists() and not (data / "environment.json").exists():
        (data / "environment.json").write_text(rates.read_text() + "\n")
    whole = [row for row in started(out / "kineto" / "plain.jsonl") if "error" not in row]
    keep_times(data, {str(row["name"]): {k: v for k, v in row.items() if k not in NOT_KEPT} for row in whole})
    describe(data)
    sys.exit(1 if REFUSED else 0)


if __name__ == "__main__":
    main()
