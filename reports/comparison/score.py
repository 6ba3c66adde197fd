"""Compare the recorded pairs and repetitions: ``python reports/comparison/score.py [FOLDER]``.

Writes results.json and the table of README.md from FOLDER/reports.jsonl.xz (by default data/, the committed one).
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

import profkit  # noqa: E402

START, END = "<!-- results: written by score.py -->", "<!-- end of results -->"
DEMANDED = 19 / 20
EXPECTED = {
    "planted": ({"slower"}, {("other", "kernels")}),
    "tf32": ({"faster"}, {("gemm", "kernels"), ("convolution", "kernels")}),
    "compiled": (
        {"faster"},
        {
            (family, "kernels")
            for family in (
                "elementwise",
                "norm",
                "copy",
                "random",
                "reduce",
                "softmax",
                "loss",
                "pooling",
                "other",
            )
        },
    ),
    "item": ({"slower"}, {("sync", "idle"), ("host", "idle")}),
    "batch": ({"not comparable"}, None),
}
"""What a comparison must say of a change, and which part must lead its explanation; written before the recordings."""

Reports = dict[str, dict[str, Any]]


def read(folder: Path) -> tuple[list[dict[str, Any]], Reports]:
    """The facts of each recording, in order, and their reports by name."""
    text = lzma.decompress((folder / "reports.jsonl.xz").read_bytes()).decode()
    rows = [json.loads(line) for line in text.splitlines()]
    reports = {row["name"]: row.pop("report") for row in rows}
    return rows, reports


def compared(scratch: Path, before: str, after: str) -> dict[str, Any]:
    """One comparison of two saved reports, as `profkit compare` makes it."""
    found = profkit.compare(scratch / f"{before}.json", scratch / f"{after}.json")
    top = found.parts[0] if found.parts else None
    step, phases = found.step, found.comparison.phases
    return {
        "before": before,
        "after": after,
        "verdict": found.verdict,
        "before_ns": step.before_ns,
        "after_ns": step.after_ns,
        "noise_ns": step.noise_ns,
        "top": [top.name, top.kind, top.delta_ns] if top else [None, None, 0],
        "adds_up": adds_up(found.parts, step) and (not phases or adds_up(phases, step)),
        "sentence": found.comparison.sentence,
    }


def adds_up(rows: Iterable[Any], step: Any) -> bool:
    """Whether parts are the whole on both sides and in the difference, to the nanosecond."""
    rows = list(rows)
    return all(
        sum(getattr(row, key) for row in rows) == getattr(step, key)
        for key in ("before_ns", "after_ns", "delta_ns")
    )


def changes(rows: list[dict[str, Any]], scratch: Path) -> list[dict[str, Any]]:
    """Every pair of a model: the verdict and the part on top against what was planted."""
    table = []
    for row in rows:
        if row["round"] is not None or row["change"] == "none":
            continue
        found = compared(scratch, f"{row['model']}_none", row["name"])
        verdicts, causes = EXPECTED[row["change"]]
        found["right_verdict"] = found["verdict"] in verdicts
        found["right_cause"] = None if causes is None else tuple(found["top"][:2]) in causes
        table.append(found)
    return table


def repetitions(rows: list[dict[str, Any]], scratch: Path) -> dict[str, Any]:
    """The same step against itself and against the slower one, recorded beside each other."""
    named = {
        change: [r["name"] for r in rows if r["name"].startswith(f"repeated_{change}_")]
        for change in ("none", "planted")
    }
    rounds = {row["name"]: row["round"] for row in rows}
    same = [compared(scratch, a, b) for a, b in pairwise(sorted(named["none"], key=lambda n: (rounds[n], n)))]
    slower = [
        compared(scratch, f"repeated_none_{name[-2:]}", name)
        for name in named["planted"]
        if f"repeated_none_{name[-2:]}" in rounds
    ]
    for found in slower:
        found["right_cause"] = tuple(found["top"][:2]) in EXPECTED["planted"][1]
    return {"same": same, "slower": slower}


def summary(results: dict[str, Any]) -> list[tuple[str, int, int, str]]:
    """(Question, hits, tries, demanded) of every question."""
    pairs, same, slower = results["changes"], results["same"], results["slower"]
    told = [p for p in pairs if p["right_cause"] is not None]
    every = [*pairs, *same, *slower]
    return [
        ("the right verdict of a change", sum(p["right_verdict"] for p in pairs), len(pairs), "all"),
        ("the right cause on top", sum(p["right_cause"] for p in told), len(told), "all"),
        ("the same step twice is `no change`", sum(c["verdict"] == "no change" for c in same), len(same), "19 of 20"),
        ("5 % planted is `slower`", sum(c["verdict"] == "slower" for c in slower), len(slower), "19 of 20"),
        ("... and the planted kernel is on top", sum(c["right_cause"] for c in slower), len(slower), "19 of 20"),
        ("parts and phases add up to the step", sum(c["adds_up"] for c in every), len(every), "all"),
    ]  # fmt: skip


def markdown(results: dict[str, Any], questions: list[tuple[str, int, int, str]]) -> str:
    lines = ["| question | hits | demanded | kept |", "|---|---|---|---|"]
    for question, hits, tries, demanded in questions:
        kept = tries > 0 and hits / tries >= (1.0 if demanded == "all" else DEMANDED)
        lines.append(f"| {question} | {hits} of {tries} | {demanded} | {'yes' if kept else '**no**'} |")
    lines += [
        "",
        "| change | verdict | before ms | after ms | noise ms | on top | right |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in results["changes"]:
        ms = " | ".join(f"{row[key] / 1e6:.3f}" for key in ("before_ns", "after_ns", "noise_ns"))
        top = f"{row['top'][0]} ({row['top'][1]}) {row['top'][2] / 1e6:+.3f} ms"
        right = row["right_verdict"] and row["right_cause"] is not False
        lines.append(f"| {row['after']} | {row['verdict']} | {ms} | {top} | {'yes' if right else '**no**'} |")
    for name, title in (
        ("same", "Largest change of the same step"),
        ("slower", "Smallest change of the slower one"),
    ):
        changes = [abs(c["after_ns"] / c["before_ns"] - 1) for c in results[name] if c["before_ns"]]
        if changes:
            lines += ["", f"{title}: {100 * (max(changes) if name == 'same' else min(changes)):.2f} %."]
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    rows, reports = read(folder)
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        for name, report in reports.items():
            (scratch / f"{name}.json").write_text(json.dumps(report))
        results = {"changes": changes(rows, scratch), **repetitions(rows, scratch)}
    questions = summary(results)
    page = markdown(results, questions)
    print(page)
    if folder == HERE / "data":
        table = [dict(zip(("question", "hits", "tries", "demanded"), q, strict=True)) for q in questions]
        (HERE / "results.json").write_text(json.dumps({"summary": table, **results}, indent=1) + "\n")
        readme = HERE / "README.md"
        before, _, rest = readme.read_text().partition(START)
        readme.write_text(f"{before}{START}\n\n{page}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE / "data")
