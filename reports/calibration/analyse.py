"""Analyse the calibration study's recordings: writes results.json, plots and the tables of README.md.

    python analyse.py [--held-out]

Kernels of held-out and blind workloads count in the scores but are not listed one by one, so that nobody tunes on them;
`--held-out` lists them too, for when the thresholds are fixed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import plots  # noqa: E402
import scores  # noqa: E402
import study  # noqa: E402
import tables  # noqa: E402
from clock import launch_clock  # noqa: E402

START, END = "<!-- results: written by analyse.py -->", "<!-- end of results -->"


def collect() -> tuple[list[study.KernelRow], list[study.VerdictRow], dict[str, Any]]:
    """Every recording analysed: rows of kernels, rows of verdicts, the launch clock of each recorder."""
    kernels: list[study.KernelRow] = []
    verdicts: list[study.VerdictRow] = []
    clocks: dict[str, Any] = {}
    for work in study.workloads():
        for recorder, trace in study.recordings(work):
            verdicts.append(study.verdict(work, recorder, trace))
            if work.counters:
                kernels += study.kernel_rows(work, recorder, trace)
            if work.name == "probe_launches":
                clocks[recorder] = launch_clock(trace)
    return kernels, verdicts, clocks


def off_rows(
    kernels: list[study.KernelRow], held_out: bool, first: int = 15
) -> dict[str, list[study.KernelRow]]:
    """What misses each demand, by time, in Kineto recordings."""
    shown = [r for r in kernels if r.recorder == "kineto" and (held_out or r.workload.split == "fit")]
    shown.sort(key=lambda r: -r.time_ns)
    misses = {
        "Modelled bytes off by more than 25 %": lambda r: (
            r.time_ns > scores.LONG_NS and not abs(scores.bytes_ratio(r) - 1) <= 0.25
        ),
        "Another side than the counters'": lambda r: r.expected and r.bound != r.expected,
        "Far from both roofs, not called so": lambda r: (
            max(r.sm, r.dram) < 35 and not (r.unsaturated or r.bound == "overhead")
        ),
        "Near a roof, called unsaturated": lambda r: max(r.sm, r.dram) > 60 and r.unsaturated,
    }
    return {title: [r for r in shown if miss(r)][:first] for title, miss in misses.items()}


def markdown(
    results: dict[str, Any], kernels: list[study.KernelRow], verdicts: list[study.VerdictRow], held_out: bool
) -> str:
    """The generated part of the README."""
    parts = [
        "## Scores", tables.demands_table(results["scores"]),
        "## By kind of workload (Kineto, both splits)", tables.kinds_table(results["by_kind"]),
        *blind_kinds(results),
        "## Confusion: ms of one step of each workload, Kineto", tables.confusion_table(results["confusion"]["kineto"]),
        "## Confusion, plain nsys (no shapes)", tables.confusion_table(results["confusion"]["nsys"]),
        "## To and Q", tables.clock_table(results["clock"]),
        "## Verdicts", tables.verdict_count_table(results["verdicts"]),
        "Verdicts that are not the truth by construction, with the unprofiled step known:\n",
        tables.wrong_verdicts_table(
            [v for v in verdicts if held_out or v.workload.split == "fit"], scores.counter_sides(kernels)
        ),
        "## The same step by nsys and by Kineto: shares of busy time, in points",
        tables.busy_table(results["busy"]),
        "## What misses, longest first" + ("" if held_out else " (workloads of the fit)"),
    ]  # fmt: skip
    for title, rows in off_rows(kernels, held_out).items():
        parts += [f"### {title}", tables.kernels_table(rows) if rows else "None.\n"]
    return "\n".join(parts)


def blind_scores(kineto: list[study.KernelRow]) -> dict[str, Any]:
    """The kinds of the blind workloads of both rounds apart, once they are recorded."""
    blind = [r for r in kineto if r.workload.held_out is None]
    return {"by_kind_blind": scores.by_kind(blind)} if blind else {}


def blind_kinds(results: dict[str, Any]) -> list[str]:
    if "by_kind_blind" not in results:
        return []
    return ["## By kind of workload (Kineto, blind)", tables.kinds_table(results["by_kind_blind"])]


def tidy(value: Any) -> Any:
    """Plain JSON: rounded, and null where nothing is known."""
    if isinstance(value, dict):
        return {k: tidy(v) for k, v in value.items()}
    if isinstance(value, list):
        return [tidy(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--held-out", action="store_true", help="list kernels of held-out workloads too")
    held_out = parser.parse_args().held_out
    kernels, verdicts, clocks = collect()
    kineto = [r for r in kernels if r.recorder == "kineto"]
    results = {
        "scores": scores.by_split(kernels),
        "by_kind": scores.by_kind([r for r in kineto if r.workload.held_out is not None]),
        **blind_scores(kineto),
        "confusion": {
            n: scores.confusion([r for r in kernels if r.recorder == n]) for n in ("kineto", "emit", "nsys")
        },
        "clock": clocks,
        "verdicts": scores.verdict_scores(verdicts, scores.counter_sides(kernels)),
        "busy": scores.busy_differences(verdicts),
    }
    (HERE / "results.json").write_text(json.dumps(tidy(results), indent=1) + "\n")
    folder = HERE / "plots"
    folder.mkdir(exist_ok=True)
    for plot in (plots.bytes_plot, plots.sides_plot, plots.efficiency_plot):
        (folder / f"{plot.__name__.removesuffix('_plot')}.svg").write_text(plot(kineto))
    readme = HERE / "README.md"
    before, _, rest = readme.read_text().partition(START)
    after = rest.partition(END)[2]
    readme.write_text(f"{before}{START}\n\n{markdown(results, kernels, verdicts, held_out)}\n{END}{after}")
    print(tables.demands_table(results["scores"]))


if __name__ == "__main__":
    main()
