"""The step without a profiler: recorded, estimated and measured, for all recordings whose step was timed.

    python docs/dev/unprofiled_steps.py [FOLDER] > docs/dev/unprofiled_steps.md

FOLDER holds the shared recordings (by default ../shared/recordings). What a ``run.json`` tells is the measured time here;
the estimate does not see it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from profkit.readers import read
from profkit.report.unprofiled import UnprofiledSteps, device_steps
from profkit.report.views import Options, analysed_views
from profkit.timeline.step_times import step_times
from profkit.timeline.view import TraceView

PLAIN_MS: Final[Mapping[str, tuple[float, float]]] = {
    "gpt_fp32": (63.1, 63.1),
    "gpt_bf16": (35.3, 38.3),
    "gpt_bf16_compile": (27.3, 28.0),
    "big_gemm_bf16": (5.8, 5.8),
    "elementwise_chain": (3.95, 3.95),
    "tiny_mlp": (13.0, 24.0),
    "sync_item": (1.28, 1.4),
    "dataloader_stall": (57.7, 69.8),
    "convnet_fp16_channels_last": (6.7, 6.7),
    "ddp": (20.2, 20.2),
}
"""Timed without a profiler, the fastest and the slowest timing, as the recordings' README has them."""

NOISE: Final = 0.02
"""Two timings of one step differ by this."""


@dataclass(frozen=True)
class Row:
    """One recording."""

    file: str
    tool: str
    source: str
    recorded_ms: float
    low_ms: float
    likely_ms: float
    high_ms: float
    measured_ms: tuple[float, float]

    @property
    def inside(self) -> bool:
        """Whether a timing lies in the interval, within the noise of timing."""
        fastest, slowest = self.measured_ms
        return self.low_ms <= slowest * (1 + NOISE) and self.high_ms >= fastest * (1 - NOISE)

    def error(self, ms: float) -> float:
        """How far a step is off from the nearest timing, as a share of it."""
        fastest, slowest = self.measured_ms
        return ms / min(max(ms, fastest), slowest) - 1


def timed(folder: Path) -> Iterator[tuple[Path, tuple[float, float]]]:
    """The recordings with a timing."""
    for file in sorted((*folder.glob("kineto/*.json.gz"), *folder.glob("nsys/*.sqlite"))):
        name = file.name.partition(".")[0]
        for part in ("_rank0", "_rank1", "_stack"):
            name = name.removesuffix(part)
        name = name.removeprefix("emit_").removeprefix("metrics_")
        if name in PLAIN_MS:
            yield file, PLAIN_MS[name]
    pairs = [json.loads(line) for line in (folder / "zoo/pairs.jsonl").read_text().splitlines()]
    for model, ms in sorted({pair["model"]: pair["plain_ms"] for pair in pairs}.items()):
        yield folder / f"zoo/{model}.json.gz", (ms, ms)
    for run in sorted(folder.glob("memory/*/run.json")):
        ms = json.loads(run.read_text())["plain_step_median_ns"] / 1e6
        yield run.parent / "trace.json.gz", (ms, ms)


def row_of(folder: Path, file: Path, measured_ms: tuple[float, float]) -> Row | None:
    """The row of a recording; None where its steps cannot be told."""
    view: TraceView = analysed_views([read(str(file))], Options())[0]
    step = UnprofiledSteps(device_steps(view)).of_step(step_times([view]))
    if step is None or step.unprofiled_ns is None or step.recorded_ns is None:
        return None
    length = step.unprofiled_ns
    return Row(
        file=str(file.relative_to(folder)),
        tool="torch.profiler" if view.trace.source.format == "kineto" else "nsys",
        source=step.source,
        recorded_ms=step.recorded_ns / 1e6,
        low_ms=length.low / 1e6,
        likely_ms=length.likely / 1e6,
        high_ms=length.high / 1e6,
        measured_ms=measured_ms,
    )


def main() -> None:
    """Print the table and the errors by tool."""
    here = Path(__file__).resolve().parents[2]
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent / "shared/recordings"
    rows = [row for file, ms in timed(folder) if (row := row_of(folder, file, ms))]
    print("# The step without a profiler\n\nMade by `python docs/dev/unprofiled_steps.py`. Times in ms.\n")
    print("| recording | source | recorded | low | likely | high | measured | off | inside |")
    print("|---|---|--:|--:|--:|--:|--:|--:|---|")
    for row in rows:
        fastest, slowest = row.measured_ms
        measured = f"{fastest:g}" if fastest == slowest else f"{fastest:g} to {slowest:g}"
        measured = f"{fastest:.4g}" if fastest == slowest else measured
        print(
            f"| {row.file} | {row.source} | {row.recorded_ms:.2f} | {row.low_ms:.2f} | {row.likely_ms:.2f} "
            f"| {row.high_ms:.2f} | {measured} | {row.error(row.likely_ms):+.0%} | {'yes' if row.inside else 'no'} |"
        )
    print("\n| tool | source | recordings | rms error as recorded | rms error of likely | inside |")
    print("|---|---|--:|--:|--:|--:|")
    for tool, source in sorted({(row.tool, row.source) for row in rows}):
        mine = [row for row in rows if (row.tool, row.source) == (tool, source)]
        recorded, likely = (
            float(np.sqrt(np.mean([row.error(getattr(row, name)) ** 2 for row in mine])))
            for name in ("recorded_ms", "likely_ms")
        )
        inside = sum(row.inside for row in mine)
        print(
            f"| {tool} | {source} | {len(mine)} | {recorded:.0%} | {likely:.0%} | {inside} of {len(mine)} |"
        )


if __name__ == "__main__":
    main()
