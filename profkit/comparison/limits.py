"""Limits that a step must keep, as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from profkit.errors import AnalysisError, ProfkitError
from profkit.units import parse_duration_ns

__all__ = ["DEFAULT_LIMIT", "Limit", "Limits", "LimitTexts"]

LimitTexts = Mapping[str, str | Mapping[str, str]]
"""Limits as texts under the names of the options; ``max-phase`` is a mapping by phase."""

_PERCENT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s{0,9}%", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s{0,9}([KMGT]i?)?B", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,18}(?:\.\d{1,9})?", re.ASCII)
_POWERS: Final = "KMGT"
_SHARES: Final = ("min-busy", "max-idle")
_EXAMPLES: Final = {
    "max-step": "+3%, +2ms or 42ms",
    "max-phase": "forward=+5% or forward=12ms",
    "max-memory": "+2% or 40GiB",
    "max-launches": "+5% or 800",
    "min-busy": "80%",
    "max-idle": "20%",
}


@dataclass(frozen=True)
class Limit:
    """The most (or least) that a number may be: ``+3%`` and ``+2ms`` over the baseline, ``42ms`` by itself."""

    text: str
    amount: float
    """In ns, bytes, a count, or a share of one."""
    relative: bool
    """Whether it is counted from the baseline."""
    percent: bool
    """Whether it is a share: of the baseline's number, or of the step."""

    @classmethod
    def parse(cls, name: str, text: str) -> Limit:
        """Read a limit.

        Args:
            name: What it limits, as the option is called.
            text: The limit as people write it.

        Raises:
            AnalysisError: It is no such limit.
        """
        body = text.strip()
        relative = body.startswith("+")
        body = body.removeprefix("+").strip()
        percent = _PERCENT.fullmatch(body)
        amount = float(percent[1]) / 100 if percent else _amount(name, body)
        share = name in _SHARES
        wrong = (relative or not percent) if share else (percent and not relative)
        if amount is None or wrong:
            raise AnalysisError(name, f"{text!r} is no limit for it", f"Write it like {_EXAMPLES[name]}")
        return cls(f"+{body}" if relative else body, amount, relative, percent is not None)

    def allowed(self, before: float) -> float:
        """By how much a number may exceed that of the baseline."""
        return self.amount * before if self.percent else self.amount


DEFAULT_LIMIT: Final = Limit("+3%", 0.03, True, True)
"""How much slower a step may be where no limit is given: what ten quiet steps can tell."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a gate; without any, the step has `DEFAULT_LIMIT`."""

    max_step: Limit | None = None
    max_memory: Limit | None = None
    max_launches: Limit | None = None
    min_busy: Limit | None = None
    max_idle: Limit | None = None
    max_phase: Mapping[str, Limit] = field(default_factory=dict)
    """By the phase's path."""

    @classmethod
    def of(cls, given: LimitTexts) -> Limits:
        """Limits from texts under the names of the options, ``max-phase`` a mapping by phase.

        Raises:
            AnalysisError: A name or a text is wrong.
        """
        read: dict[str, Limit] = {}
        phases: dict[str, Limit] = {}
        for name, text in given.items():
            if name not in _EXAMPLES:
                raise AnalysisError(name, "there is no such limit", f"There are {', '.join(_EXAMPLES)}")
            if name == "max-phase":
                if not isinstance(text, Mapping):
                    raise AnalysisError(name, "names no phase", f"Write it like {_EXAMPLES[name]}")
                phases = {str(path): Limit.parse(name, str(each)) for path, each in text.items()}
            else:
                read[name] = Limit.parse(name, str(text))
        return cls(
            max_step=read.get("max-step"),
            max_memory=read.get("max-memory"),
            max_launches=read.get("max-launches"),
            min_busy=read.get("min-busy"),
            max_idle=read.get("max-idle"),
            max_phase=phases,
        )

    @property
    def need_a_baseline(self) -> bool:
        """Whether some limit says nothing by itself."""
        single = (self.max_step, self.max_memory, self.max_launches, self.min_busy, self.max_idle)
        given = [limit for limit in (*single, *self.max_phase.values()) if limit is not None]
        return not given or any(limit.relative for limit in given)


def _amount(name: str, text: str) -> float | None:
    if name in ("max-step", "max-phase"):
        try:
            return float(parse_duration_ns(text))
        except ProfkitError:
            return None
    if name == "max-memory":
        match = _SIZE.fullmatch(text)
        return float(match[1]) * _unit(match[2]) if match else None
    return float(text) if _NUMBER.fullmatch(text) else None


def _unit(prefix: str | None) -> float:
    if not prefix:
        return 1.0
    return float((1024 if prefix.endswith("i") else 1000) ** (_POWERS.index(prefix[0]) + 1))
