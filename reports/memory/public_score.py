"""Score what `public_study.py` predicted against what it measured: ``public_score.py OUT [PREDICTIONS]``.

PREDICTIONS is another file there than ``predictions.jsonl``: what a later profkit says of the same recordings. OUT holds ``predictions.jsonl`` and ``measured.jsonl``. Prints every row as Markdown, then the scores. The step as it
was recorded is no prediction of memory: scores are of changed steps. A claim about a limit is judged where the step was run
in that limit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from public_study import rows

UNITS = {"peak": ("peak_bytes", 1e9), "reserved": ("reserved_bytes", 1e9), "step_ns": ("step_ms", 1.0)}
UNTIMED = ("zero", "adam8bit", "chunked_loss")
"""Among fake ranks nothing is moved, and kernels by hand are no kernels of a library: only their memory is a truth."""
SPARE = 0.9
"""A step that reserves less than this share of a limit fits with over 10 % to spare."""


def joined(out: Path, predictions: str = "predictions.jsonl") -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What was said and what was measured of each change without a limit."""
    measured = {
        (row["model"], row["change"]): row
        for row in rows(out / "measured.jsonl")
        if row["limit_bytes"] is None
    }
    said = [row for row in rows(out / predictions) if row["limit_bytes"] is None]
    return [(row, measured[key]) for row in said if (key := (row["model"], row["change"])) in measured]


def off(said: dict[str, Any], measured: dict[str, Any], name: str) -> tuple[float, bool] | None:
    """How far the likely value is off, and whether the interval holds what was measured."""
    column, _ = UNITS[name]
    untimed = name == "step_ns" and any(word in said["change"] for word in UNTIMED)
    if untimed or said.get(name) is None or measured.get(column) is None:
        return None
    scale = 1e-6 if name == "step_ns" else 1.0
    low, likely, high = (value * scale for value in said[name])
    return likely / measured[column] - 1, low <= measured[column] <= high


def table(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Every change, then how far each figure was off."""
    print(
        "| model | change | peak GB | off | reserved GB | off | step ms | off |\n|---|---|---|---|---|---|---|---|"
    )
    for said, measured in pairs:
        cells = []
        for name, (column, unit) in UNITS.items():
            found = off(said, measured, name)
            if found is None:
                why = "not timed" if measured.get(column) else "out of memory"
                cells += ["", said.get("error") or measured.get("error", why)[-60:]]
                continue
            cells += [
                f"{measured[column] / unit:.2f}",
                f"{found[0]:+.1%}{'' if found[1] else ' (outside)'}",
            ]
        print(f"| {said['model']} | {said['change']} | {' | '.join(cells)} |")
    print()
    changed = [pair for pair in pairs if pair[0]["change"] != "base"]
    for name, rule in (("peak", (0.05, 0.10)), ("reserved", (0.05, 0.10)), ("step_ns", (0.15, 0.25))):
        told(name, [found for pair in changed if (found := off(*pair, name))], rule)
    again = [pair for pair in changed if "checkpoint" in pair[0]["change"]]
    told(
        "step_ns", [found for pair in again if (found := off(*pair, "step_ns"))], (0.15, 0.25), "recomputed "
    )


def told(name: str, found: list[tuple[float, bool]], rule: tuple[float, float], which: str = "") -> None:
    if not found:
        return
    sizes = sorted(abs(each) for each, _ in found)
    near = [sum(size <= limit for size in sizes) for limit in rule]
    print(
        f"{which}{name}: {len(sizes)} rows, median {sizes[len(sizes) // 2]:.1%}, largest {sizes[-1]:.1%}, within {rule[0]:.0%} "
        f"{near[0]}, within {rule[1]:.0%} {near[1]}, inside the interval {sum(inside for _, inside in found)}"
    )


def claims(out: Path, predictions: str) -> None:
    """What was said to fit and ran out of memory, and the other way round."""
    said = {
        (row["model"], row["change"], row["limit_bytes"]): row
        for row in rows(out / predictions)
        if row["limit_bytes"] and not row.get("max")
    }
    told = [
        (said[key], row)
        for row in rows(out / "measured.jsonl")
        if (key := (row["model"], row["change"], row["limit_bytes"])) in said and not row["batch"]
    ]
    judged = [(a, b) for a, b in told if "error" not in a and "error" not in b]
    wrong = [(a, b) for a, b in judged if a["fits"] is True and b["out_of_memory"]]
    spare = [
        (a, b)
        for a, b in judged
        if a["fits"] is False and not b["out_of_memory"] and b["reserved_bytes"] <= SPARE * b["limit_bytes"]
    ]
    counts = {word: sum(a["fits"] is word for a, _ in judged) for word in (True, False, None)}
    print(
        f"\nlimits: {len(judged)} judged: fits {counts[True]}, does not {counts[False]}, unsaid {counts[None]}"
    )
    print(
        f"said to fit, ran out of memory: {[(a['model'], a['change'], a['limit_bytes']) for a, _ in wrong]}"
    )
    print(
        f"said not to fit, fitted with 10 % to spare: {[(a['model'], a['change'], a['limit_bytes']) for a, _ in spare]}"
    )
    ran = sum(not b["out_of_memory"] for a, b in judged if a["fits"] is False)
    print(f"said not to fit, ran all the same: {ran}")


def largest(out: Path, predictions: str) -> None:
    """The largest batch that was named, and one 15 % larger."""
    print(
        "\n| model | limit GB | largest batch named | runs | 15 % larger | runs |\n|---|---|---|---|---|---|"
    )
    measured = rows(out / "measured.jsonl")
    for row in rows(out / predictions):
        if not row.get("max"):
            continue
        mine = sorted(
            (each for each in measured if each["batch"] and each["model"] == row["model"]),
            key=lambda each: each["batch"],
        )
        cells = [
            f"{each['batch']} | {'error' if 'error' in each else 'no' if each['out_of_memory'] else 'yes'}"
            for each in mine
        ]
        limit = f"{row['limit_bytes'] / 1e9:.2f}"
        print(f"| {row['model']} | {limit} | {' | '.join(cells) or row.get('error', 'not measured')} |")


def main(out: Path, predictions: str = "predictions.jsonl") -> None:
    table(joined(out, predictions))
    claims(out, predictions)
    largest(out, predictions)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
