"""What came of the study: ``python reports/trial/score.py OUT`` prints a table in Markdown, and the three demands.

OUT is what `study.py` wrote, or ``results.json``, which ``--keep`` writes: the rows, without what a machine said.

An expert's speed-up is the best of the ways in `expert` that ran; a trial's is that of the later measurement, and 1 where
nothing was kept or the trial failed. A kept change loses time where the later step with it is longer than the bare one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ENOUGH = 0.8
MOST_OVERHEAD = 1.01


def times(found: dict[str, Any]) -> dict[str, list[float]]:
    """Step times in ms by way."""
    ways: dict[str, list[float]] = {}
    for run in found["runs"]:
        if "step_ms" in run:
            ways.setdefault(run["way"], []).append(run["step_ms"])
    return ways


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def crashes(found: dict[str, Any]) -> list[str]:
    """The ways of a later measurement that did not run, with what they said last."""
    return [
        f"{run['way']}: {(run.get('said') or 'nothing said').strip().splitlines()[-1]}"
        for run in found["runs"]
        if "step_ms" not in run
    ]


def row(out: Path, name: str) -> dict[str, Any]:
    """What is known of a program."""
    found: dict[str, Any] = {"name": name, "promised": None, "changes": "nothing", "notes": []}
    path = out / f"{name}.trial.json"
    trial = json.loads(path.read_text())["try"] if path.exists() else None
    kept = ""
    if trial is not None:
        found |= {"changes": " + ".join(trial["final"]["changes"]) or "nothing"}
        found["promised"], kept = trial["final"]["speedup"], ",".join(trial["final"]["changes"])
    else:
        said = json.loads((out / f"{name}.trial.failed").read_text()).get("said") or "nothing said"
        found |= {"changes": "the trial failed", "notes": [f"trial: {said.strip().splitlines()[-1]}"]}
    later = out / f"{name}.later.json"
    if later.exists():
        measured = json.loads(later.read_text())
        found["notes"] += crashes(measured)
        found |= speedups(times(measured), bool(kept))
        if measured["kept"] != kept:
            found["notes"].append(
                f"the later measurement is of another trial, which kept {measured['kept'] or 'nothing'}"
            )
            found.pop("kept", None)
    overhead = out / f"{name}.overhead.json"
    if overhead.exists():
        found["overhead"] = json.loads(overhead.read_text())["ratio"]
    return found | predicted(out / f"{name}.predicted.json", kept)


def predicted(path: Path, kept: str) -> dict[str, Any]:
    """What a recording's replay promises of what was kept: of all together, as far as they have a price."""
    if not kept or not path.exists():
        return {}
    found = json.loads(path.read_text())
    changes = found["what_if"]["changes"]
    if found["kept"] != kept or not changes:
        return {}
    whole = changes[-1]
    priced = whole["name"].split(" + ")
    unpriced = [name for name in kept.split(",") if name not in priced]
    return {"predicted": whole["speedup"], "unpriced": unpriced}


def speedups(ways: dict[str, list[float]], keeps: bool) -> dict[str, Any]:
    """Of what was kept and of the expert; empty where the bare program did not run, less what did not run."""
    if "bare" not in ways:
        return {}
    bare = mean(ways["bare"])
    experts = [bare / mean(each) for way, each in ways.items() if way.startswith("expert")]
    found: dict[str, Any] = {"bare_ms": bare, "expert": max(experts, default=1.0)}
    if not keeps:
        found["kept"] = 1.0
    elif "kept" in ways:
        found["kept"] = bare / mean(ways["kept"])
    return found


def ratio(interval: dict[str, float] | None) -> str:
    return (
        ""
        if interval is None
        else f"{interval['likely']:.2f} ({interval['low']:.2f} to {interval['high']:.2f})"
    )


def gain_share(each: dict[str, Any]) -> float | None:
    """The share of the expert's speed-up that the trial reached."""
    return each["kept"] / each["expert"] if "kept" in each and "expert" in each else None


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The rows in Markdown, and what is to be known of them."""
    lines = [
        "| program | bare step, ms | kept | predicted | by the trial | later | expert | of the expert's | overhead |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in rows:
        share = gain_share(each)
        low, likely, high = each.get("overhead", (None, None, None))
        cells = [
            each["name"],
            f"{each['bare_ms']:.2f}" if "bare_ms" in each else "",
            each["changes"],
            ratio(each.get("predicted"))
            + (f" without {', '.join(each['unpriced'])}" if each.get("unpriced") else ""),
            ratio(each["promised"]),
            f"{each['kept']:.2f}" if "kept" in each else "",
            f"{each['expert']:.2f}" if "expert" in each else "",
            "" if share is None else f"{share:.0%}",
            "" if likely is None else f"{likely:.3f} ({low:.3f} to {high:.3f})",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {each['name']}: {note}" for each in rows for note in each["notes"]]
    return [*lines, "", *([*notes, ""] if notes else [])]


def demands(rows: list[dict[str, Any]]) -> list[str]:
    """What is asked of all, with how many hold it."""
    shares = [share for each in rows if (share := gain_share(each)) is not None]
    heard = [each["overhead"] for each in rows if "overhead" in each]
    lost = sum(each.get("kept", 1.0) < 1 for each in rows)
    return [
        f"{sum(share >= ENOUGH for share in shares)} of {len(shares)} reach {ENOUGH:.0%} of the expert's speed-up; "
        f"{len(rows) - len(shares)} more were not measured later.",
        f"{lost} lose time by what was kept.",
        f"{sum(likely <= MOST_OVERHEAD for _, likely, _ in heard)} of {len(heard)} within {MOST_OVERHEAD} of the bare "
        f"step, {sum(high <= MOST_OVERHEAD for _, _, high in heard)} with their upper end.",
    ]


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The rows of a study, or of a file of results."""
    if out.is_file():
        rows: list[dict[str, Any]] = json.loads(out.read_text())
        return rows
    names = {path.name.split(".")[0] for path in out.glob("*.trial.*") if path.suffix in (".json", ".failed")}
    return [row(out, name) for name in sorted(names)]


def keep(rows: list[dict[str, Any]], path: Path) -> None:
    """Add rows to a file of results, in the place of earlier ones of the same programs; notes, which name files, stay out."""
    known = {each["name"]: each for each in (rows_of(path) if path.exists() else [])}
    known |= {each["name"]: each | {"notes": []} for each in rows}
    path.write_text(json.dumps([known[name] for name in sorted(known)], indent=1) + "\n")


def main() -> None:
    """Print the table."""
    out, *rest = sys.argv[1:]
    rows = rows_of(Path(out))
    if rest[:1] == ["--keep"]:
        keep(rows, Path(rest[1]))
    print("\n".join([*table(rows), *demands(rows)]))


if __name__ == "__main__":
    main()
