"""The study's tables as Markdown, for the README."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scores import DEMANDS, GROUPS, kernel_dict
from study import KernelRow, VerdictRow

_LABELS = {
    "bytes_within_25_pct": "modelled DRAM bytes within 25 % of measured (kernels over 10 us)",
    "side_agrees": "compute or memory as the counters say (one throughput over 45 %)",
    "slow_called_slow": "both throughputs under 35 %: called unsaturated or overhead",
    "busy_flagged": "a throughput over 60 %: flagged unsaturated",
}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'|'.join('---' for _ in header)}|"]
    return "\n".join(lines + [f"| {' | '.join(r)} |" for r in rows]) + "\n"


def percent(share: dict[str, float]) -> str:
    if not share["kernels"]:
        return "-"
    return f"{100 * share['share']:.1f} % of {share['ms']:.1f} ms"


def demands_table(scores: dict[str, dict[str, Any]]) -> str:
    """Every demanded number, by recorder and split."""
    columns = [(recorder, split) for recorder, found in scores.items() for split in found]
    rows = []
    for key, (bar, how) in DEMANDS.items():
        cells = [percent(scores[recorder][split][key]) for recorder, split in columns]
        rows.append([_LABELS[key], f"{how} {bar:.0%}", *cells])
        if key == "side_agrees":
            for group in GROUPS:
                cells = [percent(scores[r][s]["side_agrees_by_group"][group]) for r, s in columns]
                rows.append([f"... of {group}", f"{how} {bar:.0%}", *cells])
    return table(["share of GPU time", "demanded", *(f"{r}, {s}" for r, s in columns)], rows)


def kinds_table(kinds: dict[str, dict[str, Any]]) -> str:
    header = ["kind", "bytes within 25 %", "side agrees", "slow called slow", "busy flagged"]
    return table(
        header, ([kind, *(percent(scores[key]) for key in DEMANDS)] for kind, scores in kinds.items())
    )


def confusion_table(matrix: dict[str, dict[str, float]]) -> str:
    called = sorted({c for row in matrix.values() for c in row})
    return table(
        ["counters say", *called],
        ([side, *(f"{row.get(c, 0):.2f}" for c in called)] for side, row in sorted(matrix.items())),
    )


def kernels_table(rows: Iterable[KernelRow]) -> str:
    header = [
        "workload",
        "kernel",
        "ms",
        "SM %",
        "DRAM %",
        "measured MB",
        "model / measured",
        "bound",
        "basis",
    ]
    return table(
        header,
        (
            [
                d["workload"], f"`{d['kernel'].replace('|', '/')}`", f"{d['ms']:.3f}", f"{d['sm_pct']:.0f}", f"{d['dram_pct']:.0f}",
                f"{d['measured_mb']:.1f}", f"{d['bytes_ratio']:.2f}", d["bound"] + (", unsaturated" if d["unsaturated"] else ""),
                d["basis"],
            ]
            for d in map(kernel_dict, rows)
        ),
    )  # fmt: skip


def verdict_count_table(counts: dict[str, Any]) -> str:
    rows = []
    for recorder, splits in counts.items():
        for split, c in splits.items():
            n = c["recordings"]
            right = [c["right"], c["right_knowing_plain_step"], c["right_by_truth_or_measurement"]]
            rows.append([recorder, split, str(n), *map(str, right)])
    header = [
        "recorder",
        "split",
        "recordings",
        "right",
        "right, plain step known",
        "... or as measured",
    ]
    return table(header, rows)


def wrong_verdicts_table(rows: Sequence[VerdictRow], sides: dict[str, str]) -> str:
    wrong = [r for r in rows if r.workload.truth not in ("none", r.bound_plain)]
    return table(
        ["workload", "split", "recorder", "truth", "counters", "verdict", "plain step known", "basis"],
        (
            [
                r.workload.name,
                r.workload.split,
                r.recorder,
                r.workload.truth,
                sides.get(r.workload.name, ""),
                r.bound,
                r.bound_plain,
                r.confidence,
            ]
            for r in wrong
        ),
    )


def busy_table(rows: Sequence[dict[str, Any]]) -> str:
    def ms(value: float | None) -> str:
        return f"{value:.3f}" if value else "-"

    header = [
        "workload",
        "split",
        "largest difference",
        "share",
        "plain ms",
        "nsys ms",
        "Kineto ms",
        "busy nsys",
        "busy Kineto",
    ]
    return table(
        header,
        (
            [
                r["workload"], r["split"], f"{r['points']:.1f}", r["share"], ms(r["plain_ms"]), ms(r["nsys_ms"]), ms(r["kineto_ms"]),
                ms(r["nsys_busy_ms"]), ms(r["kineto_busy_ms"]),
            ]
            for r in sorted(rows, key=lambda r: -r["points"])
        ),
    )  # fmt: skip


def clock_table(clocks: dict[str, Any]) -> str:
    rows = []
    for recorder, groups in clocks.items():
        for group, entries in groups.items():
            for name, q in entries.items():
                values = [f"{q[k]:.0f}" for k in ("min", "q1", "median", "q3", "p99")]
                rows.append([recorder, group.removesuffix("_ns"), name, *values])
    return table(["recorder", "what", "case", "min ns", "quartile", "median", "quartile", "99 %"], rows)
