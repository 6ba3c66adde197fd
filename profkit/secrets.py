"""What looks like a secret in a text of people: the names that secrets have, and what services give out."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SECRET_PAIR", "SECRET_VALUE", "SECRET_WORD"]

_WORD: Final = r"(?:key|token|secret|passw|passphrase|credential|auth|bearer|cookie|(?<![a-z])(?:pw|pwd|pass|pat|pin)(?![a-z]))"
SECRET_WORD: Final = re.compile(_WORD, re.IGNORECASE)
"""A part of a name, such as that of an option or of an environment variable, that says that its value is secret."""

SECRET_PAIR: Final = re.compile(
    rf"""([\w.-]*{_WORD}[\w.-]*["']?\s*[:=]\s*)([\[{{].*|"[^"]*"|'[^']*'|[^,;}}&]+)""",
    re.IGNORECASE | re.DOTALL,
)
"""A name and its value within a longer text: a dictionary, a header, a query. For texts of people, not for files."""

SECRET_VALUE: Final = re.compile(r"\b(?:hf|sk|pk|ghp|gho|glpat|xox[bpa]|AKIA|AIza|eyJ)[-_A-Za-z0-9]{14,}")
"""What services give out as keys."""
