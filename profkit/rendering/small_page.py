"""Pages without scripts in the style of the report's: only the rules of its style sheet that the page needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Final

import jinja2
from markupsafe import Markup

__all__ = ["small_page"]

_CLASS: Final = re.compile(r"\.([a-z][\w-]*)")
_VARIABLE: Final = re.compile(r"\n  (--[\w-]+): [^;\n]+;")


def small_page(template: str, values: dict[str, object]) -> str:
    """A page of a template of ``assets``, which puts ``style`` into its head."""
    page = _environment().get_template(template)
    body = page.render(values, style="")
    classes = {name for text in re.findall(r'class="([^"]*)"', body) for name in text.split()}
    whole = page.render(values, style=Markup(_style(frozenset(classes), template)))
    return whole.encode("utf-8", "replace").decode("utf-8")


@cache
def _style(classes: frozenset[str], template: str) -> str:
    """The rules of the report's style sheet for these classes, with the variables that they and the template use."""
    rules = "\n".join(_kept(_asset("report.css"), classes))
    used = set(re.findall(r"var\((--[\w-]+)\)", rules + _asset(template)))
    return _VARIABLE.sub(lambda found: found[0] if found[1] in used else "", rules)


def _kept(sheet: str, classes: frozenset[str]) -> Iterator[str]:
    for selector, body in _rules(sheet):
        if selector.startswith("@media"):
            inner = "\n".join(_kept(body, classes))
            if inner:
                yield f"{selector}{{{inner}}}"
            continue
        parts = [part.strip() for part in selector.split(",")]
        wanted = [part for part in parts if classes.issuperset(_CLASS.findall(part))]
        if wanted and not selector.startswith("@"):
            yield f"{','.join(wanted)}{{{body}}}"


def _rules(sheet: str) -> Iterator[tuple[str, str]]:
    """Each rule of a sheet as its selector and what is in its braces."""
    sheet = re.sub(r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/", "", sheet)
    depth = start = opened = 0
    for brace in re.finditer(r"[{}]", sheet):
        if brace[0] == "{":
            opened = brace.start() if not depth else opened
            depth += 1
            continue
        depth -= 1
        if not depth:
            yield sheet[start:opened].strip(), sheet[opened + 1 : brace.start()]
            start = brace.end()


def _asset(name: str) -> str:
    return files("profkit.rendering").joinpath("assets", name).read_text("utf-8")


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
