"""64 traces of one job, one of them damaged and one missing: one process against two workers of this machine.

    python reports/ranks/speed.py                    # seven runs of each, taken in turns; prints the medians
    python reports/ranks/speed.py --runs 3 --mb 20   # traces of 20 MB of JSON instead of 8

Each run is a fresh process, measured from its start to its end: the imports, the start of the workers and the merge
count. Both must tell the same. Run it on a quiet machine with two free cores: the load is printed beside the result.
"""

import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "tests" / "data" / "kineto" / f"ddp_rank{rank}.json.gz" for rank in (0, 1)]
RANKS, DAMAGED, MISSING = 64, 17, 40
POLL_S = 0.25
"""Looking at all processes takes milliseconds, of which two busy cores have none to spare."""
WAYS = {"one process": None, "two workers": "local"}


def make(folder, mb):
    """The traces: those of the two recorded ranks in turn, each with a rank of its own."""
    texts = [gzip.decompress(path.read_bytes()).decode() for path in SOURCES]
    if mb:
        sys.path.insert(0, str(ROOT / "reports" / "bench"))
        import make_kineto

        for at, source in enumerate(SOURCES):
            make_kineto.make(source, folder / "long.json", mb=mb)
            texts[at] = (folder / "long.json").read_text()
        (folder / "long.json").unlink()
    files = []
    for rank in range(RANKS):
        file = folder / f"rank{rank:02d}.json.gz"
        text = re.sub(r'"rank": \d+', f'"rank": {rank}', texts[rank % 2], count=1)
        text = re.sub(r'"world_size": \d+', f'"world_size": {RANKS}', text, count=1)
        if rank == DAMAGED:
            file.write_bytes(b"\x00\x01 no trace at all")
        elif rank != MISSING:
            file.write_bytes(gzip.compress(text.encode(), 6))
        files.append(str(file))
    return files, len(texts[0]) / 1e6


def analyse(files, cluster):
    """In the process that is measured."""
    import profkit

    result = profkit.analyze(files, cluster=cluster).document
    failed = [f["message"][:10] for f in result.health["findings"] if f["code"] == "file-failed"]
    told = {
        "ranks": [row["rank"] for row in result.ranks],
        "late_ns": [row["late_ns"] for row in result.ranks],
        "totals": {k: v for k, v in result.totals.items() if k != "kernels"},
        "shares": result.verdict["shares"],
        "failed": sorted(failed),
    }
    print(json.dumps(told))


def run(files, way):
    """One run in a session of its own, whose processes are watched."""
    command = [sys.executable, __file__, "--child", json.dumps([files, WAYS[way]])]
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    cpu_s, peak_mb = {}, {}
    while child.poll() is None:
        for pid, seconds, megabytes in processes_of(child.pid):
            cpu_s[pid], peak_mb[pid] = seconds, megabytes
        time.sleep(POLL_S)
    seconds = time.perf_counter() - began
    if child.returncode:
        sys.exit(f"a run failed with exit code {child.returncode}")
    told = json.loads(child.stdout.read().splitlines()[-1])
    return {"told": told, "seconds": seconds, "cpu_s": sum(cpu_s.values()), "peak_mb": max(peak_mb.values())}


def processes_of(session):
    """Of each process of a session: its number, CPU seconds, and largest memory in MB. Linux only."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) != session:
                continue
            peak = re.search(r"VmHWM:\s+(\d+)", (folder / "status").read_text())
        except OSError:  # it has ended
            continue
        if peak:
            ticks = int(fields[11]) + int(fields[12])
            yield int(folder.name), ticks / os.sysconf("SC_CLK_TCK"), int(peak[1]) / 1024


def compare(folder, runs, mb):
    files, size_mb = make(folder, mb)
    found = {way: [] for way in WAYS}
    for _ in range(runs):
        for way in WAYS:
            found[way].append(run(files, way))
            last = found[way][-1]
            load = os.getloadavg()[0]
            print(f"{way:12} {last['seconds']:6.2f} s  cpu {last['cpu_s']:6.2f} s  load {load:.1f}")
    first = found["one process"][0]["told"]
    same = all(each["told"] == first for way in WAYS for each in found[way])
    median = {way: statistics.median(each["seconds"] for each in found[way]) for way in WAYS}
    peak = {way: max(each["peak_mb"] for each in found[way]) for way in WAYS}
    print(f"{RANKS} traces of {size_mb:.0f} MB, {len(first['ranks'])} reported, failed: {first['failed']}")
    print(f"the same is told by all runs: {same}")
    for way in WAYS:
        print(f"{way:12} median of {runs}: {median[way]:.2f} s, largest process {peak[way]:.0f} MB")
    print(f"{os.cpu_count()} cores, speedup {median['one process'] / median['two workers']:.2f}")
    return same


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--mb", type=int, default=0, help="make the traces longer, to so many MB of JSON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        analyse(*json.loads(options.child))
        return
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(not compare(Path(folder), options.runs, options.mb))


if __name__ == "__main__":
    main()
