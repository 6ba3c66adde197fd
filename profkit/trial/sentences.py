"""What a trial says, in words."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.model.rows import Interval
from profkit.trial.curves import Likeness
from profkit.trial.document import ByHand, Kept, LossRow, TrialRow, TryDocument, changes_of

__all__ = ["closing_sentence", "costs_of", "is_part", "name_of", "speedup_text", "trial_text", "verdict_on"]


def verdict_on(ratio: Interval | None, noise: float, likeness: Likeness) -> tuple[bool, str]:
    """Whether a change is kept, and why."""
    if likeness.same is False:
        gain = "" if ratio is None else f"{speedup_text(ratio)}, but "
        return False, f"{gain}{likeness.why}"
    if ratio is None:
        return False, "too few turns within the budget: give it a larger --budget"
    text = speedup_text(ratio)
    if ratio.low > 1 + noise:
        return True, f"{text}; {likeness.why}"
    if ratio.high < 1:
        return False, f"{text}: slower"
    if ratio.low > 1 or ratio.likely > 1 + noise:
        return False, f"{text}: not beyond the noise of {noise:.1%}; --steps or a larger --budget may tell"
    return False, f"{text}: no faster"


def speedup_text(ratio: Interval) -> str:
    """1.32x (1.28 to 1.36)."""
    return f"{ratio.likely:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


def closing_sentence(final: Kept, loss: LossRow, rows: Sequence[TrialRow]) -> str:
    """The whole trial in a line: "41.2 -> 17.9 ms (2.30x, 2.24 to 2.36), loss unchanged"."""
    ratio = final.speedup
    if ratio is None:
        measured = [row for row in rows if row.measured]
        if not measured:
            return "Nothing was measured."
        return f"Nothing helps: the step takes {_ms(final.before_ms)} as it is."
    stays = "loss unchanged" if loss.unchanged else loss.why
    gain = f"{ratio.likely:.2f}x, {ratio.low:.2f} to {ratio.high:.2f}"
    return f"{_figure(final.before_ms)} -> {_ms(final.after_ms)} ({gain}), {stays}"


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
