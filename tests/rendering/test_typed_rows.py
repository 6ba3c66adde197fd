"""A renderer that reads a field which no row has is refused by the type checker, and a template by its engine."""

import subprocess
import sys
from pathlib import Path

import jinja2
import pytest

from profkit.rendering import html, markdown
from tests.rendering.sample_reports import compute_bound

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_mypy_refuses_a_renderer_with_a_typing_error_in_a_field(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    text = Path(markdown.__file__).read_text("utf-8")
    assert "row.gpu_exclusive_ns" in text
    planted = tmp_path / "planted.py"
    planted.write_text(text.replace("row.gpu_exclusive_ns", "row.gpu_exclusve_ns"), "utf-8")
    whole = tmp_path / "whole.py"
    whole.write_text(text, "utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", planted, whole]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, done.stdout
    assert "planted.py" in errors[0]
    assert '"PhaseRow" has no attribute "gpu_exclusve_ns"' in errors[0]


def test_a_template_that_names_a_field_that_is_not_there_does_not_render(monkeypatch):
    def planted(name):
        text = html._asset(name)
        return text.replace("row.gpu_exclusive_ns", "row.gpu_exclusve_ns")

    environment = html._environment().overlay(loader=jinja2.FunctionLoader(planted), bytecode_cache=None)
    monkeypatch.setattr(html, "_environment", lambda: environment)
    with pytest.raises(jinja2.UndefinedError, match="gpu_exclusve_ns"):
        html.render_html(compute_bound())
