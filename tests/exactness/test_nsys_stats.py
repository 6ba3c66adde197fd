"""Against nsys' own statistics: the kernels to the nanosecond, and the projections where the rules are the same."""

import csv
import gzip
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

import profkit
from profkit.readers import read
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.timeline.view import TraceView
from tests.shared import DATA

NSYS = shutil.which("nsys")
OURS = sorted(DATA.glob("nsys/*.sqlite.gz"))
SAME_RULES = ("forward", "loss", "optimizer", "data", "matmul", "elementwise", "replay")
"""Ranges whose launches are all made by the thread that the range is on."""

pytestmark = [
    pytest.mark.nsys,
    pytest.mark.skipif(NSYS is None, reason="SKIPPED LOUDLY: no nsys on the PATH"),
]


def name_of(path: Path) -> str:
    return path.name.split(".")[0]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recordings as nsys wants them; it writes beside its input, so they are copies."""
    folder = tmp_path_factory.mktemp("exports")
    for path in OURS:
        (folder / f"{name_of(path)}.sqlite").write_bytes(gzip.decompress(path.read_bytes()))
    return folder


def stats(export: Path, report: str) -> list[dict[str, str]]:
    command = [
        str(NSYS),
        "stats",
        "--quiet",
        "--report",
        report,
        "--format",
        "csv",
        "--output",
        "-",
        str(export),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("Processing")]
    return list(csv.DictReader(lines))


@cache
def view_of(path: Path) -> TraceView:
    ((view,), _) = timelines([read(path)], Options())
    return view


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_the_kernels_of_the_file_are_those_of_nsys(path: Path, exports: Path) -> None:
    rows = stats(exports / f"{name_of(path)}.sqlite", "cuda_gpu_kern_sum")
    theirs = {row["Name"]: (int(row["Instances"]), int(row["Total Time (ns)"])) for row in rows}
    totals = profkit.analyze(path).document.totals
    assert {row.name: (row.count, row.total_ns) for row in totals.kernels} == theirs
    assert totals.kernel_count == sum(count for count, _ in theirs.values())
    assert totals.kernel_sum_ns == sum(total for _, total in theirs.values())


def projections(view: TraceView, own_thread: bool) -> dict[str, tuple[int, int, int]]:
    """By phase name, as nsys projects: instances, sum of their spans on the device, operations launched in them.

    Args:
        view: The analysed recording.
        own_thread: Leave out what another thread launched.
    """
    operations, ranges = view.trace.operations, view.trace.ranges
    inside: dict[int, list[int]] = {}
    for row, phase in enumerate(view.phases.of_operation.tolist()):
        if phase >= 0 and own_thread and view.launches.thread[row] != ranges.thread[phase]:
            continue
        while phase >= 0:
            inside.setdefault(phase, []).append(row)
            phase = int(view.phases.nesting.parent[phase])
    found: dict[str, tuple[int, int, int]] = {}
    for phase, rows in inside.items():
        name = view.trace.strings[ranges.name[phase]]
        count, span, launched = found.get(name, (0, 0, 0))
        length = int(operations.end_ns[rows].max() - operations.start_ns[rows].min())
        found[name] = (count + 1, span + length, launched + len(set(operations.correlation[rows].tolist())))
    return found


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_a_phase_is_projected_as_by_nsys_where_its_own_thread_launches(path: Path, exports: Path) -> None:
    rows = stats(exports / f"{name_of(path)}.sqlite", "nvtx_gpu_proj_sum")
    theirs = {
        row["Range"].removeprefix(":"): (
            int(row["Range Instances"]),
            int(row["Total Proj Time (ns)"]),
            int(row["Total GPU Ops"]),
        )
        for row in rows
    }
    ours = projections(view_of(path), own_thread=False)
    shared = [name for name in SAME_RULES if name in theirs and name in ours]
    assert shared
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}
    # nsys lends no phase to autograd's threads; without that its rule is ours for backward too.
    alone = projections(view_of(path), own_thread=True)
    assert alone.get("backward") == theirs.get("backward")
    if "backward" in theirs:
        assert ours["backward"][2] > theirs["backward"][2]
