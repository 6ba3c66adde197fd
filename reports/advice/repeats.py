"""How far two measurements of the same pair agree: what no prediction can beat.

`repeated.json` has the pairs of studies 1 and 2 timed again, on another machine of the same kind, with the same code.
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

HERE = Path(__file__).resolve().parent
WIDEST = 1.5
"""The median high/low that is asked for."""


def main() -> None:
    repeated = json.loads((HERE / "repeated.json").read_text())["pairs"]
    scores = json.loads((HERE / "scores.json").read_text())
    for study, key in ((1, "in_view"), (2, "second_study_in_view")):
        off = []
        for row in scores[key]["rows"]:
            again = repeated.get(f"{row['pair']} (study {study})")
            if row["changes"] and again:
                each = [math.log(b / a) for b, a in zip(again["before"], again["after"], strict=True)]
                off.append(statistics.fmean(each) - math.log(row["speedup"]))
        agree = sum(abs(math.expm1(each)) <= 0.25 for each in off) / len(off)
        inside = sum(abs(each) <= math.log(WIDEST) / 2 for each in off) / len(off)
        print(
            f"study {study}: of {len(off)} changed pairs the repeated speed-up is within 25 % of the first for {agree:.0%}, "
            f"and inside an interval of high/low {WIDEST} around it for {inside:.0%}"
        )
    sides = [each for pair in repeated.values() for each in pair.values() if len(each) > 1]
    apart = sorted(max(each) / min(each) - 1 for each in sides)
    print(
        f"{len(apart)} sides timed twice, minutes apart in one process: half differ by more than {apart[len(apart) // 2]:.0%}, "
        f"one in ten by more than {apart[round(0.9 * len(apart))]:.0%}"
    )


if __name__ == "__main__":
    main()
