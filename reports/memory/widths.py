"""Widths of the intervals of `profkit.fit`, by leaving out a model at a time: ``widths.py STUDY IN_VIEW_TABLE``.

STUDY holds ``mended.jsonl``, what the present profkit says of the recordings of `public_study.py`, and ``measured.jsonl``; the table is what `fit_study.py` prints. The
squared error of a row is taken for the sum of one variance for each of its changes, and one for any run. The widths are
these deviations times a factor: the one with which 95 % of a change's rows lie inside, each judged by the deviations of
the other models' rows. Prints the deviations times the factor for ``_UNSURE`` of profkit/simulation/fit_changes.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from public_score import joined, off

NAMES = {
    "sdpa": "fused-attention",
    "checkpoint": "recompute",
    "sgd": "optimizer",
    "adam": "optimizer",
    "fused": "fused-optimizer",
    "accumulate_2": "accumulate",
    "keep": "keep-gradients",
    "offload": "offload-optimizer",
    "infer": "inference",
}
_SHARE = 0.95
_ANY = "any"
_PRIOR_ROWS = 2
"""Each variance is drawn to the median of all as if so many more rows had been seen."""

_ENOUGH = 8

Row = tuple[str, frozenset[str], float, float]
"""Model, changes, and the errors of the peak and of reserved memory."""


def kinds(change: str) -> frozenset[str]:
    """The names of a row's changes, as profkit has them."""
    found = set()
    for part in (
        change.replace("bf16_batch", "bf16+batch").replace("checkpoint_batch", "checkpoint+batch").split("+")
    ):
        name = part.partition("_x")[0]
        found.add(NAMES.get(name, name))
    return frozenset(found - {"base"})


def of_public_models(out: Path) -> list[Row]:
    rows = []
    for said, measured in joined(out, "mended.jsonl"):
        errors = off(said, measured, "peak"), off(said, measured, "reserved")
        if None not in errors:
            rows.append((said["model"], kinds(said["change"]), errors[0][0], errors[1][0]))
    return rows


def in_view(table: Path) -> list[Row]:
    rows = []
    for line in table.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if (
            len(cells) == 11
            and cells[4].partition("%")[0][:1] in "+-"
            and cells[0] != "model"
            and "%" in cells[4]
        ):
            errors = [float(cells[at].partition("%")[0]) / 100 for at in (4, 7)]
            rows.append((cells[0], kinds(cells[1]), *errors))
    return rows


def variances(rows: list[Row], place: int) -> dict[str, float]:
    """A variance for each change: by turns each row's squared error is shared out, and shares are averaged."""
    names = [*sorted({name for row in rows for name in row[1]}), _ANY]
    mean = float(np.mean([row[place] ** 2 for row in rows]))
    usual = float(np.median([row[place] ** 2 for row in rows]))
    found = dict.fromkeys(names, mean)
    for _ in range(300):
        shares: dict[str, list[float]] = {name: [usual] * _PRIOR_ROWS for name in names}
        for row in rows:
            mine = [*row[1], _ANY]
            total = sum(found[name] for name in mine) or 1.0
            for name in mine:
                share = found[name] / total
                shares[name].append(found[name] * (1 - share) + share**2 * row[place] ** 2)
        found = {name: float(np.mean(each)) for name, each in shares.items()}
    return found


def deviation(row: Row, found: dict[str, float]) -> float:
    other = max(found.values())
    return sum(found.get(name, other) for name in [*row[1], _ANY]) ** 0.5


def factors(rows: list[Row], place: int, found: dict[str, float]) -> dict[str, float]:
    """By change: with what the deviations hold the rows of models that had no part in them.

    A row is judged with the change that is least sure; changes with few rows are judged together.
    """
    ratios: dict[str, list[float]] = {}
    for model in {row[0] for row in rows}:
        others = variances([row for row in rows if row[0] != model], place)
        for row in rows:
            if row[0] == model:
                least_sure = max(row[1], key=lambda name: found[name])
                ratios.setdefault(least_sure, []).append(abs(row[place]) / deviation(row, others))
    pooled = [ratio for each in ratios.values() if len(each) < _ENOUGH for ratio in each]
    times = {}
    for name in found:
        mine = ratios.get(name, [])
        times[name] = float(np.quantile(mine if len(mine) >= _ENOUGH else pooled, _SHARE, method="higher"))
    return times


def main(out: Path, table: Path) -> None:
    rows = [row for row in [*of_public_models(out), *in_view(table)] if row[1]]
    widths = []
    for place in (2, 3):
        found = variances(rows, place)
        times = factors(rows, place, found)
        widths.append({name: times[name] * (each + found[_ANY]) ** 0.5 for name, each in found.items()})
    for name in sorted(widths[0].keys() - {_ANY}):
        count = sum(name in row[1] for row in rows)
        print(f'    "{name}": ({widths[0][name]:.3f}, {widths[1][name]:.3f}),  # {count} rows')


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
