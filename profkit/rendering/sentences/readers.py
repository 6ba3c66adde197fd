"""What readers find in files: lost events, versions that they do not know, files that fail."""

from __future__ import annotations

from typing import Final

from profkit.rendering.sentences.wording import Table, Template

__all__ = ["FINDINGS", "family_of"]

FINDINGS: Final[Table] = {}


def family_of(code: str) -> Template:
    """The sentence of a code that is made from a reason: ``dropped-zero-length``.

    Raises:
        KeyError: There is no sentence for the code.
    """
    if code.startswith("dropped-"):
        reason = code.removeprefix("dropped-").replace("-", " ")
        return "{count:event} left out: " + reason.replace("{", "").replace("}", "")
    raise KeyError(code)
