"""How a sentence is made: a template and named values, each printed by the unit that its name ends in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from profkit.model.findings import Param
from profkit.units import bytes_text, count_text, duration_text, noun_text, percent_text

__all__ = ["Params", "Table", "Template", "param_text", "say"]

Params: TypeAlias = Mapping[str, Param]
"""The values of a sentence by name."""

Template: TypeAlias = str | Callable[[Params], str]
"""A sentence with ``{gap_ns}``, ``{share}`` or ``{count:step}`` in it, or a function where words depend on a value."""

Table: TypeAlias = Mapping[str, Template]
"""Sentences by code."""


def say(template: Template, params: Params) -> str:
    """The sentence with its values: ``say("{count:step} took {gap_ns}", {"count": 2, "gap_ns": 1500})``.

    A name's end is its unit: ``_ns``, ``_bytes``, ``share``. A noun after the colon is counted, with its plural
    where that is irregular: ``{count:copy or memset|copies and memsets}``.

    Raises:
        KeyError: A value of the template is missing.
    """
    if callable(template):
        return template(params)
    return template.format_map({name: _Shown(name, value) for name, value in params.items()})


def param_text(name: str, value: Param) -> str:
    """One value as it stands in a sentence; the end of its name is its unit."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return _number_text(name, value)
    return "unknown" if value is None else ", ".join(str(each) for each in value)


def _number_text(name: str, value: float) -> str:
    unit = name.rpartition("_")[2]
    shown = {"ns": duration_text, "bytes": bytes_text, "share": percent_text}.get(unit)
    if shown:
        return shown(value)
    return count_text(value) if isinstance(value, int) else f"{value:.3g}"


class _Shown(NamedTuple):
    name: str
    value: Param

    def __format__(self, noun: str) -> str:
        if noun and isinstance(self.value, int):
            singular, _, plural = noun.partition("|")
            return noun_text(self.value, singular, plural or None)
        return param_text(self.name, self.value)
