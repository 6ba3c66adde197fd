"""What each constant of the time model is worth: every measured pair, with the constant and with a neutral value.

    ablation.py OUT.md TRACES...

TRACES are folders with the first sides of studies on public models: ``<model>.json.gz`` and ``pairs.jsonl`` beside them (or
``public/pairs.jsonl`` for those of this folder). The three older studies are read from here, as far as their traces are kept.
A constant that hardly moves any pair, or moves as many to the wrong side as to the right one, has no evidence.

The last two columns leave one model out: for each, the constant's value is chosen anew from `TIMES` the present one and the
neutral one, by the mean error of all other models, and the model's changed pairs are told with that.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import predict  # noqa: E402
from public_score import CHANGED, FLAGS  # noqa: E402

from profkit.model import Trace  # noqa: E402
from profkit.readers import read  # noqa: E402
from profkit.report.assembly import timelines  # noqa: E402
from profkit.report.views import Options  # noqa: E402
from profkit.simulation import changes_named, copies, find_step, fusion, optimizers  # noqa: E402
from profkit.simulation.constants import LIKELY, Constants  # noqa: E402
from profkit.simulation.exchanged import Exchanged  # noqa: E402
from profkit.simulation.predict import Step  # noqa: E402
from profkit.simulation.registry import refusal  # noqa: E402

NEUTRAL = {
    "matrix": 1.0, "misaligned": 0.7, "attention": 1.0, "memory": 1.0, "start_ns": 0.0, "node_ns": 0.0, "light_launch": 1.0, "compiled_entry": 0.0,
    "normed": 0.0, "idle": 1.0, "host": 1.0,
}  # fmt: skip
"""What the model would say if nobody had measured the constant."""
OF_ONE_CHANGE = {
    (fusion, "_CONVOLVED"): (2.0,), (fusion, "_HALF"): (0.0, 1.0), (fusion, "_FORWARD"): (1.0,), (optimizers, "_RENEWED"): (0.0, 1.0), (copies, "_PACKED"): (0.0, 1.0),
}  # fmt: skip
"""Constants that only one change reads, with what they would be without a measurement. A share above 1 is never reached."""
TIMES = (0.7, 1.0, 1.4)
_MOVES = 0.01

Reader = Callable[[Path], Trace]


@dataclass
class Pair:
    """A measured change of a recorded step."""

    study: str
    name: str
    step: Step
    changes: Sequence[str]
    workers: int | None
    speedup: float

    def said(self, constants: Constants) -> float:
        """The likely speed-up; none where the change is refused."""
        names = [name for name in self.changes if refusal(self.step, name, self.changes) is None]
        played, least = self.step.changed(changes_named(names, self.workers), constants)
        return self.step.plain_ns / max(played.step_ns * self.step.unprofiled.scale, least, 1.0)

    def error(self, said: float) -> float:
        return math.log(said / self.speedup)


def step_in(paths: Sequence[Path], reader: Reader) -> Step | None:
    views, _ = timelines([reader(path) for path in paths], Options())
    return find_step(views[0], 0, Exchanged.of(views))


def public(folder: Path, reader: Reader) -> Iterator[Pair]:
    """The pairs of a study on public models."""
    listed = folder / "pairs.jsonl"
    rows = [json.loads(line) for line in listed.read_text().splitlines()]
    for model in sorted({row["model"] for row in rows}):
        step = step_in(paths, reader) if (paths := sorted(folder.glob(f"{model}.*json.gz"))) else None
        for row in (each for each in rows if each["model"] == model and "speedup" in each):
            names = [FLAGS.get(part, part) for part in row["change"].split("+")]
            if step is not None:
                yield Pair(folder.name, f"{model} {row['change']}", step, names, None, row["speedup"])


def older(reader: Reader) -> Iterator[Pair]:
    """The pairs of the first three studies whose first side is kept."""
    first = json.loads((HERE / "data" / "after.json").read_text())["pairs"]
    for name, changes in predict.PAIRS.items():
        path, row = HERE / "data" / f"{name}.json.gz", first.get(name, {})
        if path.exists() and all("step_ms" in row.get(side, {}) for side in ("before", "after")):
            speedup = row["before"]["step_ms"] / row["after"]["step_ms"]
            yield from made(reader, "first", name, path, changes, speedup)
    for study in ("second", "third"):
        for name, row in json.loads((HERE / study / "blind.json").read_text())["pairs"].items():
            path = HERE / study / f"{name}.json.gz"
            if path.exists() and all("step_ms" in row.get(side, {}) for side in ("before", "after")):
                speedup = row["before"]["step_ms"] / row["after"]["step_ms"]
                yield from made(reader, study, name, path, asked(row["predicted"]["changes"]), speedup)


def asked(changes: Sequence[str]) -> tuple[list[str], int | None]:
    workers = [int(each.split()[1]) for each in changes if each.startswith("loader-workers")]
    return [each for each in changes if not each.startswith("loader-workers")], (workers or [None])[0]


def made(
    reader: Reader,
    study: str,
    name: str,
    path: Path,
    changes: tuple[list[str], int | None],
    speedup: float,
) -> Iterator[Pair]:
    names, workers = changes
    step = step_in([path], reader)
    if step is not None and (names or workers):
        yield Pair(study, name, step, names, workers, speedup)


def score(pairs: Sequence[Pair], said: Sequence[float]) -> tuple[int, int, float]:
    """Changed pairs, those within 25 %, and their mean error."""
    errors = [abs(p.error(s)) for p, s in zip(pairs, said, strict=True) if p.speedup >= CHANGED]
    near = sum(each <= math.log(1.25) for each in errors)
    return len(errors), near, math.exp(statistics.fmean(errors)) - 1 if errors else 0.0


def held_out(pairs: Sequence[Pair], said: dict[float, list[float]]) -> tuple[list[float], float]:
    """The values that are chosen where one model is left out, and the mean error of the changed pairs left out.

    Args:
        pairs: All pairs.
        said: What is said of each with each value of a constant.
    """
    changed = [at for at, pair in enumerate(pairs) if pair.speedup >= CHANGED]
    models = {at: (pairs[at].study, pairs[at].name.split()[0]) for at in changed}
    errors = {value: {at: abs(pairs[at].error(each[at])) for at in changed} for value, each in said.items()}
    chosen, found = set(), []
    for model in sorted(set(models.values())):
        value = min(said, key=lambda v: sum(errors[v][at] for at in changed if models[at] != model))
        chosen.add(value)
        found += [errors[value][at] for at in changed if models[at] == model]
    return sorted(chosen), math.exp(statistics.fmean(found)) - 1


def intervals(pairs: Sequence[Pair]) -> str:
    """How often [low, high] holds the measured speed-up, and how wide it is at the median."""
    found = [(p, p.step.predict(changes_named(p.changes, p.workers))) for p in pairs if p.speedup >= CHANGED]
    inside = sum(f.low <= p.speedup <= f.high for p, f in found)
    width = statistics.median(f.high / f.low for _, f in found)
    return f"{inside} of {len(found)} inside, median high/low {width:.2f}"


def by_limit(pairs: Sequence[Pair], said: Sequence[float]) -> Iterator[str]:
    """The scores by what limits the step after the change; compiled steps are a group of their own."""
    groups: dict[str, list[int]] = {}
    for at, pair in enumerate(pairs):
        limit = pair.step.predict(changes_named(pair.changes, pair.workers)).limit
        groups.setdefault("compiled" if "compile" in pair.changes else limit, []).append(at)
    yield "| limit after the change | changed | within 15 % | within 25 % | mean error |"
    yield "|---|---|---|---|---|"
    for limit, rows in groups.items():
        errors = [abs(pairs[at].error(said[at])) for at in rows if pairs[at].speedup >= CHANGED]
        near = [sum(each <= math.log(most) for each in errors) for most in (1.15, 1.25)]
        mean = math.exp(statistics.fmean(errors)) - 1
        yield f"| {limit} | {len(errors)} | {near[0]} | {near[1]} | {mean:.1%} |"


def of_one_change(pairs: Sequence[Pair], now: Sequence[float]) -> Iterator[str]:
    """What each constant of a single change is worth, as the table of the model's own."""
    yield "| constant | likely | without | pairs moved | error with | without | within 25 % of those | without |"
    yield "|---|---|---|---|---|---|---|---|"
    for (module, name), values in OF_ONE_CHANGE.items():
        likely = getattr(module, name)
        for value in values:
            setattr(module, name, value)
            then = [pair.said(LIKELY) for pair in pairs]
            setattr(module, name, likely)
            moved = [at for at in range(len(pairs)) if abs(math.log(then[at] / now[at])) > _MOVES]
            cells = []
            for said in (now, then):
                errors = [abs(pairs[at].error(said[at])) for at in moved]
                mean = f"{math.exp(statistics.fmean(errors)) - 1:.1%}" if moved else "–"
                cells.append((mean, sum(each <= math.log(1.25) for each in errors)))
            (with_it, near), (without, left) = cells
            yield f"| {name} | {likely:g} | {value:g} | {len(moved)} | {with_it} | {without} | {near} | {left} |"


def without_shapes(folders: Sequence[Path]) -> Iterator[str]:
    """Compiled pairs, said of the recording as it is and as nsys would show it: without shapes."""
    found = []
    for reader in (read, _read_without_shapes):
        pairs = [pair for pair in all_pairs(folders, reader) if "compile" in pair.changes]
        found.append((pairs, [pair.said(LIKELY) for pair in pairs]))
    yield "| compiled pair | measured | said | without shapes |"
    yield "|---|---|---|---|"
    for pair, *said in zip(found[0][0], *(each for _, each in found), strict=True):
        yield f"| {pair.study} {pair.name} | {pair.speedup:.2f} | {said[0]:.2f} | {said[1]:.2f} |"
    scores = [score(*each) for each in found]
    cells = (f"{near} of {changed}, {error:.1%}" for changed, near, error in scores)
    yield f"| within 25 % of those changed, mean error | | {' | '.join(cells)} |"


def _read_without_shapes(path: Path) -> Trace:
    trace = read(path)
    none = np.full_like(trace.ranges.shapes, -1)
    return replace(trace, ranges=replace(trace.ranges, shapes=none, strides=none))


def all_pairs(folders: Sequence[Path], reader: Reader = read) -> list[Pair]:
    return [*older(reader), *(pair for folder in folders for pair in public(folder, reader))]


def main() -> None:
    out, folders = Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]]
    pairs = all_pairs(folders)
    now = [pair.said(LIKELY) for pair in pairs]
    changed, near, error = score(pairs, now)
    lines = [
        f"{len(pairs)} pairs, {changed} changed by {CHANGED} and more: {near} within 25 %, mean error {error:.1%}, "
        f"{intervals(pairs)}.",
        "",
    ]
    for study in dict.fromkeys(pair.study for pair in pairs):
        mine = [at for at, pair in enumerate(pairs) if pair.study == study]
        n, hits, mean = score([pairs[at] for at in mine], [now[at] for at in mine])
        false = sum(pairs[at].speedup < 1.1 < now[at] for at in mine)
        lines.append(
            f"- {study}: {hits} of {n} within 25 %, mean error {mean:.1%}, {intervals([pairs[at] for at in mine])}, "
            f"{false} false promises"
        )
    lines += ["", *by_limit(pairs, now), ""]
    lines += [
        "| constant | likely | neutral | pairs moved | error with | without | within 25 % with | without "
        "| chosen with one model left out | error left out |",
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for field in fields(Constants):
        value = NEUTRAL[field.name]
        if value == getattr(LIKELY, field.name):
            continue
        likely = getattr(LIKELY, field.name)
        tried = {
            each: [pair.said(replace(LIKELY, **{field.name: each})) for pair in pairs]
            for each in {value, *(round(likely * times, 3) for times in TIMES if times != 1)}
        }
        then = tried[value]
        chosen, left_out = held_out(pairs, {likely: now, **tried})
        moved = [at for at in range(len(pairs)) if abs(math.log(then[at] / now[at])) > _MOVES]
        before, after = (
            math.exp(statistics.fmean(abs(pairs[at].error(said[at])) for at in moved)) - 1 if moved else 0.0
            for said in (now, then)
        )
        lines.append(
            f"| {field.name} | {getattr(LIKELY, field.name):g} | {value:g} | {len(moved)} | {before:.1%} | {after:.1%} | "
            f"{near} | {score(pairs, then)[1]} | {', '.join(f'{each:g}' for each in chosen)} | {left_out:.1%} |"
        )
        print(lines[-1], flush=True)
    lines += ["", *of_one_change(pairs, now), "", *without_shapes(folders)]
    lines += ["", "| pair | measured | said | error |", "|---|---|---|---|"]
    lines += [
        f"| {pair.study} {pair.name} | {pair.speedup:.2f} | {said:.2f} | {said / pair.speedup - 1:+.0%} |"
        for pair, said in sorted(zip(pairs, now, strict=True), key=lambda each: -abs(each[0].error(each[1])))[
            :30
        ]
    ]
    out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
