"""Whether the first advice on a public model is its best measured change, or within 10 % of it.

    first_advice.py FOLDERS...

FOLDERS are studies on public models: ``<model>.json.gz`` and ``pairs.jsonl``. Models whose first advice nobody timed are told
apart: they prove nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from public_score import FLAGS  # noqa: E402

from profkit.advice import advise  # noqa: E402
from profkit.readers import read  # noqa: E402
from profkit.report.assembly import timelines  # noqa: E402
from profkit.report.views import Options  # noqa: E402

_NEAR = 1.1


def first_of(paths: list[Path]) -> str | None:
    """The change of the first advice with a price."""
    views, _ = timelines([read(path) for path in paths], Options())
    return next((row.change for row in advise(views) if row.speedup), None)


def main() -> None:
    near, judged, untimed = 0, 0, 0
    print("| model | first advice | measured | best measured | |", "|---|---|---|---|---|", sep="\n")
    for folder in map(Path, sys.argv[1:]):
        rows = [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]
        timed: dict[str, dict[str, float]] = {}
        for row in rows:
            if "speedup" in row and "+" not in row["change"]:
                name = FLAGS.get(row["change"], row["change"])
                timed.setdefault(row["model"], {})[name] = row["speedup"]
        for model, changes in timed.items():
            if not (paths := sorted(folder.glob(f"{model}.*json.gz"))):
                continue
            first = first_of(paths)
            gain = changes.get(first, 0.0) if first else 1.0
            best, most = max(changes.items(), key=lambda each: each[1])
            judged += bool(gain)
            untimed += not gain
            near += gain * _NEAR >= most
            told = "not timed" if not gain else "" if gain * _NEAR >= most else "missed"
            print(
                f"| {model} | {first or 'none'} | {gain or 0:.2f} | {best} {most:.2f} | {told} |", flush=True
            )
    print(f"\nThe first advice is the best measured change, or within 10 % of it, for {near} of {judged} models; "
          f"of {untimed} more it was not timed.")  # fmt: skip


if __name__ == "__main__":
    main()
