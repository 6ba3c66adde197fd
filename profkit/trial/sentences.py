"""What a trial says, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from profkit.model.rows import Interval
from profkit.trial.curves import Likeness
from profkit.trial.document import ByHand, Kept, LossRow, TrialRow, TryDocument, changes_of
from profkit.units import noun_text

__all__ = [
    "NO_TURN", "Ruling", "closing_sentence", "costs_of", "is_part", "name_of", "speedup_text", "trial_text", "verdict_on",
]  # fmt: skip

NO_TURN: Final = "the budget ended before its turn"
_LARGE: Final = 1.10
"""A gain that nobody would miss: the studies of prices count what is promised beyond it (reports/advice)."""


class Ruling(NamedTuple):
    """What a measurement says of a change."""

    kept: bool
    why: str
    undecided: bool = False
    """Whether its interval holds no gain and a large one."""


def verdict_on(ratio: Interval | None, noise: float, likeness: Likeness) -> Ruling:
    """Whether a change is kept, and why."""
    if likeness.same is False:
        gain = "" if ratio is None else f"{speedup_text(ratio)}, but "
        return Ruling(False, f"{gain}{likeness.why}")
    if ratio is None:
        return Ruling(False, "too few turns within the budget: give it a larger --budget", undecided=True)
    text = speedup_text(ratio)
    if ratio.low > 1 + noise:
        return Ruling(True, f"{text}; {likeness.why}")
    if ratio.high < 1:
        return Ruling(False, f"{text}: slower")
    if ratio.low <= 1 and ratio.high > _LARGE:
        why = "its turns scatter too much to tell; --steps or a larger --budget may"
        return Ruling(False, f"{text}: {why}", undecided=True)
    if ratio.low > 1 or ratio.likely > 1 + noise:
        why = f"not beyond the noise of {noise:.1%}; --steps or a larger --budget may tell"
        return Ruling(False, f"{text}: {why}")
    return Ruling(False, f"{text}: no faster")


def speedup_text(ratio: Interval) -> str:
    """1.32x (1.28 to 1.36)."""
    return f"{ratio.likely:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


def closing_sentence(final: Kept, loss: LossRow, rows: Sequence[TrialRow]) -> str:
    """The whole trial in a line: "41.2 -> 17.9 ms (2.30x, 2.24 to 2.36), loss unchanged"."""
    ratio = final.speedup
    if ratio is None:
        return _nothing(final, rows)
    stays = "loss unchanged" if loss.unchanged else loss.why
    gain = f"{ratio.likely:.2f}x, {ratio.low:.2f} to {ratio.high:.2f}"
    return f"{_figure(final.before_ms)} -> {_ms(final.after_ms)} ({gain}), {stays}"


def _nothing(final: Kept, rows: Sequence[TrialRow]) -> str:
    if not any(row.measured for row in rows):
        return "Nothing was measured."
    undecided = sorted({name_of(row) for row in rows if row.undecided})
    waiting = sum(row.why == NO_TURN for row in rows)
    known = "helps" if not undecided and not waiting else "is shown to help"
    text = f"Nothing {known}: the step takes {_ms(final.before_ms)} as it is."
    if undecided:
        text += f" Their turns scatter too much to tell: {', '.join(undecided)}."
    if waiting:
        text += f" The budget ended before the turn of {noun_text(waiting, 'change')}."
    return text


def trial_text(found: TryDocument) -> str:
    """The trial for a terminal."""
    width = max((len(name_of(row)) for row in found.trials), default=0)
    lines = []
    for row in found.trials:
        predicted = f" (predicted {speedup_text(row.predicted)})" if row.predicted else ""
        lines.append(
            f"{'+' if is_part(row, found) else ' '} {name_of(row):<{width}}  {row.why}{predicted}{costs_of(row, found)}"
        )
    if found.variation is not None:
        lines += ["", f"Two unchanged programs: {speedup_text(found.variation)}."]
    lines += [f"Note: {note}." for note in found.notes]
    lines += [f"The trial took {found.duration_s:.0f} s.", "", found.sentence]
    if found.final.environment:
        lines += ["", "Run it as:", f"  {' '.join([*found.final.environment, *found.command])}"]
    if code := [line for line in found.final.patch if line not in found.final.environment]:
        lines += ["", "Write:", *(f"  {line}" for line in code)]
    return "\n".join([*lines, *_by_hand(found.by_hand)])


def is_part(row: TrialRow, found: TryDocument) -> bool:
    """Whether it helped, and is in what is kept in the end."""
    return row.kept and set(changes_of(row)) <= set(found.final.changes)


def _by_hand(rows: Sequence[ByHand]) -> list[str]:
    if not rows:
        return []
    lines = ["", "Not tried, since they need an edit; a replay of the recording predicts:"]
    for row in rows:
        lines.append(f"  {row.change}  {speedup_text(row.predicted)}: {row.what}")
        lines += [f"      {line}" for line in row.code]
    return lines


def name_of(row: TrialRow) -> str:
    """What was tried, after the changes that both sides had."""
    return " + ".join(changes_of(row))


def costs_of(row: TrialRow, found: TryDocument) -> str:
    """What a change costs beside the step's time: memory, and a warm-up that takes a second longer."""
    costs = ""
    if row.peak_bytes is not None and found.baseline_peak_bytes:
        costs = f"; memory {found.baseline_peak_bytes / 2**30:.2f} -> {row.peak_bytes / 2**30:.2f} GiB"
    before_s = found.baseline_warmup_s
    if row.warmup_s is not None and row.warmup_s > before_s + 1:
        costs += f"; start and warm-up {before_s:.1f} -> {row.warmup_s:.1f} s"
    return costs


def _figure(milliseconds: float) -> str:
    return f"{milliseconds:.1f}" if milliseconds >= 10 else f"{milliseconds:.3g}"


def _ms(milliseconds: float) -> str:
    return f"{_figure(milliseconds)} ms"
