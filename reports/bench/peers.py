"""Other tools on the same files, each in an environment of its own under ``.cache/bench``.

A run gets a fresh copy of its input in a folder of its own, since some write beside it or into it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "bench"

_HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
for question in ("get_temporal_breakdown", "get_gpu_kernel_breakdown", "get_idle_time_breakdown", "get_comm_comp_overlap"):
    try:
        getattr(analysis, question)(visualize=False)
    except Exception as error:
        print(question, type(error).__name__)
"""
_NSYS_REPORTS = (
    "cuda_gpu_kern_sum",
    "cuda_api_sum",
    "cuda_gpu_mem_time_sum",
    "nvtx_sum",
    "nvtx_kern_sum",
    "nvtx_gpu_proj_sum",
)


_NSYS_AI = ("nsys-ai==0.3.0", "duckdb==1.4.4", "duckdb-ext-sqlite==1.4.4.20260205")


def _nsys_ai(venv: Path, file: str) -> list[str]:
    """Its report of the whole recording, with the extension that DuckDB would download at its first use."""
    kept = venv / "home" / ".duckdb" / "extensions"
    if not kept.exists():
        packed = next(venv.glob("lib/python3*/site-packages/duckdb_ext/extensions"))
        shutil.copytree(packed, kept)
    return _nsys_ai_at(venv, "home", file)


def _nsys_ai_at(venv: Path, home: str, file: str) -> list[str]:
    report = [f"{venv}/bin/nsys-ai", "report", "--gpu", "0", "--trim", "0", "100000", file]
    return ["env", f"HOME={venv / home}", *report]


@dataclass(frozen=True)
class Peer:
    """A tool that answers a part of what profkit answers."""

    name: str
    kind: str
    """Of the inputs that it reads: ``kineto``, ``nsys`` or ``snapshot``."""
    packages: tuple[str, ...]
    command: Callable[[Path, str], list[str]]
    """From the folder of its environment and the input to what is run."""

    @property
    def folder(self) -> Path:
        return CACHE / re.sub(r"\W+", "_", self.name)

    def install(self) -> None:
        """Make its environment, once."""
        if self.packages and not (self.folder / "ready").exists():
            venv.create(self.folder, with_pip=True)
            pip = [str(self.folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *self.packages]
            subprocess.run(pip, check=True)
            (self.folder / "ready").touch()

    @property
    def present(self) -> bool:
        return (self.folder / "ready").exists() if self.packages else bool(shutil.which(self.name))


PEERS = (
    Peer(
        "hta",
        "kineto",
        ("traceinsight==0.6.1",),
        lambda venv, file: [f"{venv}/bin/python", "-c", _HTA, file],
    ),
    Peer(
        "tracelens",
        "kineto",
        (
            "TraceLens @ git+https://github.com/AMD-AGI/TraceLens@171dd747",
            "pandas>=2",
        ),
        lambda venv, file: [
            f"{venv}/bin/TraceLens_generate_perf_report_pytorch",
            f"--profile_json_path={file}",
            f"--output_csvs_dir={Path(file).parent}/out",
        ],
    ),
    Peer("nsys-ai", "nsys", _NSYS_AI, _nsys_ai),
    Peer(
        "nsys-ai, no DuckDB",
        "nsys",
        ("nsys-ai==0.3.0",),
        lambda venv, file: _nsys_ai_at(venv, "", file),
    ),
    Peer(
        "nsys",
        "nsys",
        (),
        lambda _, file: ["nsys", "stats", *(f"--report={report}" for report in _NSYS_REPORTS), file],
    ),
    Peer("ptmem", "snapshot", ("ptmem==0.1.2",), lambda venv, file: [f"{venv}/bin/ptmem", "-s", file]),
    Peer(
        "pt-snap",
        "snapshot",
        ("pt-snap-cli==0.4.1",),
        lambda venv, file: [
            f"{venv}/bin/pt-snap",
            "import",
            "--no-focus",
            "-o",
            f"{Path(file).parent}/out",
            file,
        ],
    ),
)


def duckdb_python() -> str | None:
    """A Python that has DuckDB with its SQLite extension: that of nsys-ai."""
    peer = next(p for p in PEERS if p.name == "nsys-ai")
    return str(peer.folder / "bin" / "python") if peer.present else None
