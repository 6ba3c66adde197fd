"""The answer of `profkit.what_if` as text."""

from __future__ import annotations

from typing import Final

from profkit.simulation.answer import TOO_LITTLE, WhatIf, WhatIfChange
from profkit.units import duration_text

__all__ = ["render_what_if_text"]

_LIMITS: Final = {
    "host": "the host",
    "device": "the device",
    "loader": "the loader",
    "waiting": "gaps between kernels",
}

_SOURCES: Final = {"estimated": "an estimate", "recorded": "as recorded"}


def render_what_if_text(found: WhatIf) -> str:
    """The step without the recorder, then a line for each change, and why the others cannot be made."""
    known = "" if found.source == "measured" else f" ({_SOURCES[found.source]})"
    lines = [
        f"Without the recorder: {duration_text(found.before_ns)}{known}. "
        f"With it: {duration_text(found.recorded_ns)}."
    ]
    for row in found.changes:
        gain = row.speedup
        lines.append(
            f"  {row.name:<28} {duration_text(row.after_ns):>10}   {gain.likely:.2f}x "
            f"({gain.low:.2f}x to {gain.high:.2f}x)   then limited by {_LIMITS[row.limit]}{_added(row)}"
        )
    if not found.changes:
        lines.append(
            "  No change would save 1 % of it." if len(found.refused) > 1 else "  Nothing is priced."
        )
    little = [row.name for row in found.refused if row.reason == TOO_LITTLE]
    if little:
        lines.append(f"Less than 1 %: {', '.join(little)}.")
    refused = [row for row in found.refused if row.reason != TOO_LITTLE]
    if refused:
        lines.append("Not applicable:")
        lines += [f"  {row.name:<28} {row.reason}" for row in refused]
    return "\n".join(lines)


def _added(row: WhatIfChange) -> str:
    """What a change adds to those above it; nothing for the first, and for all together."""
    added = row.after_previous
    return f"   {added.speedup:.2f}x after those above" if added and added.saving_ns != row.saving_ns else ""
