"""What ``--verify`` says: figures of the report against those worked out anew from the raw files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.model.findings import Finding
from profkit.rendering.sentences.wording import Params, Table, say
from profkit.units import count_text

__all__ = ["FINDINGS", "verification_lines"]


def _not_verified(params: Params) -> str:
    reason = "a second reading does not fit into memory" if params["error"] is None else "{error}"
    return say(f"Not verified: {{file}}: {reason}", params)


FINDINGS: Final[Table] = {
    "verified": "Verified by brute force over the raw files: {count:figure} equal.",
    "verification-failed": "{count} of {figures:figure} differ from a brute force over the raw files. The first is {name}: "
    "{reported} in the report, {recounted} in the files. Please report this bug, with the file if you can.",
    "not-verified": _not_verified,
}
"""The sentence of each finding by its code."""


def verification_lines(
    figures: int, differing: Sequence[tuple[str, object, object]], unread: Sequence[Finding], shown: int = 5
) -> list[str]:
    """The result for a terminal: one line when all is well.

    Args:
        figures: How many were compared.
        differing: Name, value in the report and value in the file of each that differs.
        unread: Files that could not be compared.
        shown: How many of those that differ are listed.
    """
    lines = []
    if figures:
        equal = count_text(figures - len(differing))
        lines.append(f"Verified by brute force: {equal} of {count_text(figures)} figures equal")
    lines += [
        f"  {name}: {ours} in the report, {theirs} in the file" for name, ours, theirs in differing[:shown]
    ]
    if len(differing) > shown:
        lines.append(f"  and {len(differing) - shown} more")
    return lines + [say(FINDINGS[each.code], each.params) for each in unread]
