"""How fast profkit is: whole-process CPU seconds and peak memory, against floors and other tools, in one run.

    bench.py [--big] [--peers] [--repeat 3] [--write]

Inputs are made once under ``.cache/bench/inputs`` by replicating real recordings; the same source gives the same
bytes. CPU seconds are user and system time of the process and all that it started. Compare rows of one run by
their ratio; the seconds are your machine's.

``--big`` adds 1 GB, a million kernels and a million snapshot entries. ``--peers`` makes an environment for each
other tool (from the package index) and runs it; without it, those that are there from before are run. ``--write``
keeps the results in results.json and README.md.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import make_kineto
import make_nsys
import make_snapshot
from peers import CACHE, PEERS, duckdb_python

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "tests" / "data"
STAGES = ("start", "read", "analyse", "render")
LONG_S = 20
"""What takes longer than this is run once."""
TIME_LIMIT_S = 900

Row = dict[str, object]


@dataclass(frozen=True)
class Input:
    """A large file that can be made again."""

    name: str
    kind: str
    what: str
    make: Callable[[Path], object]
    big: bool = False

    @property
    def file(self) -> Path:
        return CACHE / "inputs" / self.name

    def made(self) -> Path:
        """The file, made if it is not there."""
        if not self.file.exists():
            self.file.parent.mkdir(parents=True, exist_ok=True)
            part = self.file.with_name(f"part-{self.name}")
            self.make(part)
            part.rename(self.file)
        return self.file


def kineto(mb: int, big: bool = False) -> Input:
    source = DATA / "kineto" / "gpt_bf16.json.gz"
    return Input(
        f"k{mb}.json", "kineto", f"Kineto, {mb} MB", lambda to: make_kineto.make(source, to, mb=mb), big
    )


def nsys(kernels: int, big: bool = False) -> Input:
    source = HERE / "data" / "emit_gpt_bf16.sqlite.gz"
    what = f"nsys, {kernels / 1e6:g} million kernels"
    return Input(
        f"n{kernels}.sqlite", "nsys", what, lambda to: make_nsys.make(source, to, kernels=kernels), big
    )


def snapshot(entries: int, big: bool = False) -> Input:
    source = HERE / "data" / "gpt_bf16.pickle.gz"
    what = f"snapshot, {entries / 1e6:g} million entries"
    return Input(
        f"s{entries}.pickle",
        "snapshot",
        what,
        lambda to: make_snapshot.make(source, to, entries=entries),
        big,
    )


INPUTS = (
    kineto(10),
    kineto(100),
    kineto(1000, big=True),
    nsys(10_000),
    nsys(100_000),
    nsys(1_000_000, big=True),
    snapshot(100_000),
    snapshot(1_000_000, big=True),
)
FLOORS = {
    "kineto": ("msgspec",),
    "nsys": ("sqlite3", "duckdb"),
    "snapshot": ("unpickle",),
}


@dataclass(frozen=True)
class Cost:
    """What one process took, with all that it started."""

    cpu_s: float
    wall_s: float
    peak_mb: int
    runs: int = 1


def measure(command: Sequence[str], folder: Path | None = None) -> Cost:
    """Run a command to its end.

    Raises:
        RuntimeError: It failed, or took longer than the limit.
    """
    began = time.monotonic()
    # as an installed package runs: with modules that are compiled already
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - began > TIME_LIMIT_S:
                process.kill()
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"{command[:3]} failed: {output.read()[-600:].decode(errors='replace')}")
    wall = time.monotonic() - began
    return Cost(round(usage.ru_utime + usage.ru_stime, 3), round(wall, 2), usage.ru_maxrss // 1024)


def median(run: Callable[[], Cost], repeat: int) -> Cost:
    """The run with the median of the CPU time; long ones are run once."""
    costs = [run()]
    while len(costs) < repeat and costs[0].cpu_s < LONG_S:
        costs.append(run())
    middle = statistics.median_low([c.cpu_s for c in costs])
    chosen = next(c for c in costs if c.cpu_s == middle)
    return Cost(chosen.cpu_s, chosen.wall_s, chosen.peak_mb, len(costs))


def programs(each: Input, file: Path, repeat: int) -> Iterator[tuple[str, Cost]]:
    """Every program on one input, profkit first."""
    with tempfile.TemporaryDirectory() as folder:
        ours = [sys.executable, "-m", "profkit", "analyze", "-q", str(file), "-o", f"{folder}/report.html"]
        yield "profkit", median(lambda: measure(ours), repeat)
    for floor in FLOORS[each.kind]:
        python = duckdb_python() if floor == "duckdb" else sys.executable
        if python is not None:
            command = [python, str(HERE / "floors.py"), floor, str(file)]
            yield f"floor: {floor}", median(lambda command=command: measure(command), repeat)


def others(each: Input, file: Path, repeat: int) -> Iterator[tuple[str, Cost]]:
    """Other tools that are there, each on a copy of the input that nothing has touched."""
    for peer in PEERS:
        if peer.kind != each.kind or not peer.present:
            continue

        def run(peer=peer) -> Cost:
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                copy = shutil.copy(file, folder)
                return measure(peer.command(peer.folder, copy), Path(folder))

        try:
            yield peer.name, median(run, repeat)
        except RuntimeError as error:
            print(f"  {peer.name}: {error}", file=sys.stderr)


def stages(file: Path) -> Row:
    """CPU seconds and peak memory of reading, analysing and rendering."""
    done = subprocess.run(
        [sys.executable, str(HERE / "stages.py"), str(file)], check=True, capture_output=True, text=True
    )
    made: Row = json.loads(done.stdout)
    return made


def benchmark(each: Input, repeat: int, *, with_others: bool) -> Row:
    """One input, by all programs."""
    file = each.made()
    print(f"{each.what} ({file.stat().st_size / 1e6:.0f} MB)", file=sys.stderr)
    costs: dict[str, Cost] = {}
    runs = [programs(each, file, repeat), *([others(each, file, repeat)] if with_others else [])]
    for found in runs:
        for name, cost in found:
            costs[name] = cost
            print(f"  {name}: {cost.cpu_s} s CPU, {cost.peak_mb} MB", file=sys.stderr)
    return {
        "what": each.what,
        "kind": each.kind,
        "mb": round(file.stat().st_size / 1e6, 1),
        "costs": {name: asdict(cost) for name, cost in costs.items()},
        "stages": stages(file),
    }


def table(rows: Sequence[Row]) -> str:
    """The results as Markdown: one line a program, with its ratio to profkit."""
    lines = [
        "| input | program | CPU s | peak MB | CPU, against profkit's | runs |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours = row["costs"]["profkit"]["cpu_s"]
        for name, cost in row["costs"].items():
            shown = f"**{name}**" if name == "profkit" else name
            ratio = "1" if name == "profkit" else f"{cost['cpu_s'] / ours:.2g}"
            lines.append(
                f"| {row['what']} | {shown} | {cost['cpu_s']:.2f} | {cost['peak_mb']} | {ratio} | {cost['runs']} |"
            )
    lines += ["", f"| input | {' | '.join(f'{s}, CPU s (MB)' for s in STAGES)} |", "|---|---|---|---|---|"]
    for row in rows:
        cells = [
            f"{row['stages'][stage]['cpu_s']:.2f} ({row['stages'][stage]['peak_mb']})" for stage in STAGES
        ]
        lines.append(f"| {row['what']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--big", action="store_true", help="also 1 GB and a million kernels")
    parser.add_argument("--peers", action="store_true", help="install and run the other tools")
    parser.add_argument("--repeat", type=int, default=3, help="runs of what is short")
    parser.add_argument("--write", action="store_true", help="keep the results in this folder")
    args = parser.parse_args()
    if args.peers:
        for peer in PEERS:
            peer.install()
    compileall.compile_dir(HERE.parents[1] / "profkit", quiet=1)  # as pip does when it installs
    rows = [
        # the other tools take minutes on the small inputs already
        benchmark(each, args.repeat, with_others=not each.big)
        for each in INPUTS
        if args.big or not each.big
    ]
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"
    print(table(rows))
    if args.write:
        found = {"machine": machine, "inputs": rows}
        (HERE / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        intro = (HERE / "intro.md").read_text(encoding="utf-8")
        (HERE / "README.md").write_text(f"{intro}\nOn {machine}.\n\n{table(rows)}", encoding="utf-8")


if __name__ == "__main__":
    main()
