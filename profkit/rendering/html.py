"""The report as one HTML page that asks nothing of any network."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import sys
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket
from markupsafe import Markup

from profkit.model.result import Result
from profkit.rendering.page_data import has_plots, page_data
from profkit.rendering.page_tables import page_tables

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


def render_html(result: Result) -> str:
    """The page: verdict, health, advice, tables and plots, with every script, style and number inside it.

    Its size depends on the number of rows that are shown, which is capped, never on the number of events. A
    Content-Security-Policy allows the page's own scripts by their hashes and forbids every request. The plots'
    library is inside, compressed, and is unpacked when the first plot comes into view.
    """
    data = page_data(result)
    style = _asset("report.css")
    scripts = [_asset(name) for name in _SCRIPTS]
    plotly = _plotly() if has_plots(result, data) else None
    hashes = [_csp_hash(script.encode()) for script in scripts] + ([plotly[1]] if plotly else [])
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            page_tables(result),
            # Plotly sets style attributes; styles cannot reach out, as images and fonts from anywhere are forbidden.
            policy=f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src data:; "
            "base-uri 'none'; form-action 'none'",
            style=Markup(style),
            scripts=[Markup(script) for script in scripts],
            data=Markup(
                json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(
                    _JSON_ESCAPES
                )
            ),
            plotly=Markup(plotly[0]) if plotly else None,
        )
    )
    return page.encode("utf-8", "replace").decode("utf-8")


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
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        bytecode_cache=_TemplateCache(str(folder)),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
