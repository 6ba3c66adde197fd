"""The report as one HTML page that needs no network."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import sys
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket
from markupsafe import Markup

from profkit.model.report import REPORT_SCHEMA
from profkit.rendering.digest import (
    device_names,
    kernels_by_name,
    no_advice,
    recorded_label,
    scale_of,
    share_text,
    where_text,
)
from profkit.rendering.document import Document
from profkit.rendering.numerics_tables import numerics_sections
from profkit.rendering.page_cells import bar_text, clip, milliseconds, told, tone, visible
from profkit.rendering.page_data import has_plots, page_data
from profkit.rendering.page_devices import memory_section, ranks_section
from profkit.rendering.page_kernels import fusion_section, products_section, sources_section
from profkit.rendering.page_summary import advice_entry, health_section, method_section, verdict_section
from profkit.rendering.page_tables import idle_section, operators_section, phases_section, steps_section
from profkit.rendering.precision_tables import flop_cell, precision_section, unit_label
from profkit.rendering.report_json import json_text
from profkit.rendering.sentences.fit import change_label
from profkit.rendering.sentences.labels import bound_term
from profkit.units import bytes_text, count_text, duration_text, noun_text

__all__ = ["render_html"]

_ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = ("report.js", "kernels.js", "plots.js")
_JSON_ESCAPES = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def render_html(report: Document) -> str:
    """The page: verdict, health, advice, tables and plots, with every script, style and number inside it.

    Its size depends on the number of rows that are shown, which is capped, never on the number of events. A
    Content-Security-Policy allows the page's own scripts by their hashes and forbids every request. The plots'
    library is inside, compressed, and is unpacked when the first plot comes into view.
    """
    data = page_data(report)
    scripts = [_asset(name) for name in _SCRIPTS]
    plotly = _plotly() if has_plots(report, data) else None
    hashes = [_csp_hash(script.encode()) for script in scripts] + ([plotly[1]] if plotly else [])
    scale = scale_of(report)
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            schema=REPORT_SCHEMA,
            scale=scale,
            recorded_label=recorded_label(report),
            sections=_sections(report),
            verdict=verdict_section(report, scale),
            health=health_section(report),
            no_advice=no_advice(report),
            advice=[advice_entry(report, row) for row in report.advice],
            steps=steps_section(report),
            device_names=device_names(report),
            phases=phases_section(report, scale),
            noscript_kernels=kernels_by_name(report)[:20],
            products=products_section(report),
            fusion=fusion_section(report),
            sources=sources_section(report),
            operators=operators_section(report),
            precision=precision_section(report, scale),
            numerics=numerics_sections(report),
            idle=idle_section(report, scale),
            held=memory_section(report.memory, report.fit),
            ranks=ranks_section(report),
            method=method_section(report),
            # Plotly sets style attributes; styles cannot reach out, as images and fonts from anywhere are forbidden.
            policy=f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src data:; "
            "base-uri 'none'; form-action 'none'",
            style=Markup(_asset("report.css")),
            scripts=[Markup(script) for script in scripts],
            data=Markup(json_text(data).translate(_JSON_ESCAPES)),
            plotly=Markup(plotly[0]) if plotly else None,
        )
    )
    return page.encode("utf-8", "replace").decode("utf-8")


def _sections(report: Document) -> list[str]:
    """The templates of the sections in their order: operators stand in for kernels where there are none."""
    kernels = ["kernels"] if report.kernels else ["operators"]
    operators = ["operators"] if report.kernels else []
    first = [
        "verdict",
        "health",
        "advice",
        "steps",
        "phases",
        *kernels,
        "precision",
        "numerics",
        "timeline",
        "idle",
        "memory",
        "ranks",
    ]
    return [*first, "utilisation", *operators, "method"]


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


@cache
def _plotly() -> tuple[str, str]:
    """Plotly's script as base64 of gzip, and its hash for the policy; without importing the Python package."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("plotly, which profkit depends on, is not installed")
    script = (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_bytes()
    packer = zlib.compressobj(4, wbits=zlib.MAX_WBITS | 16)
    packed = packer.compress(script) + packer.flush()
    return base64.b64encode(packed).decode("ascii"), _csp_hash(script)


def _csp_hash(script: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode('ascii')}'"


class _TemplateCache(jinja2.FileSystemBytecodeCache):
    """Compiled templates beside their sources, as Python keeps its own; where nothing can be kept there, none are."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                Path(self.directory).mkdir(parents=True, exist_ok=True)
                super().dump_bytecode(bucket)


@cache
def _environment() -> jinja2.Environment:
    folder = Path(importlib.util.cache_from_source(str(_ASSETS / "report.html.j2"))).parent
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        bytecode_cache=_TemplateCache(str(folder)),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals.update(
        ms=milliseconds,
        duration=duration_text,
        size=lambda number: bytes_text(number).replace("-", "−"),
        percent=share_text,
        count=count_text,
        counted=noun_text,
        clip=clip,
        told=told,
        visible=visible,
        tone=tone,
        where=where_text,
        change_label=change_label,
        bound=bound_term,
        bar=bar_text,
        flop=flop_cell,
        unit=unit_label,
    )
    return environment
