"""Chains of kernels that one could do, against a compiler's own work on the same step."""

from collections import Counter

import profkit
from profkit.rendering.html import render_html
from profkit.rendering.page_kernels import fusion_section
from tests.shared import DATA

KINETO = DATA / "kineto"


def test_the_bytes_that_fusing_saves_are_what_a_compiler_saved():
    """A GPT's step moves 12.2 GB less when it is compiled, by the same models of bytes on what was then recorded."""
    eager, compiled = (profkit.analyze(KINETO / f"gpt_bf16{name}.json.gz") for name in ("", "_compile"))

    def step_bytes(report):
        return report.kernels.dram_bytes.sum() / sum(row.kept for row in report.document.window.steps)

    saved = sum(row.saved_bytes for row in eager.document.fusion)
    assert abs(saved / (step_bytes(eager) - step_bytes(compiled)) - 1) < 0.1
    assert not compiled.document.fusion


def test_chains_are_of_kernels_of_the_step_and_none_is_in_two():
    report = profkit.analyze(KINETO / "gpt_bf16.json.gz")
    launches = report.launches
    step = next(row.name for row in report.document.window.steps if row.kept)
    there = Counter(launches[launches.step == step].short_name)
    used = Counter()
    for row in report.document.fusion:
        assert len(row.kernels) > 1
        assert 0 < row.saved_bytes < row.dram_bytes
        used.update({name: count * row.count for name, count in Counter(row.kernels).items()})
    assert used
    assert all(count <= there[name] for name, count in used.items())


def test_the_page_has_the_chains_closed():
    document = profkit.analyze(KINETO / "elementwise_chain.json.gz").document
    (chain, row), *_ = fusion_section(document)[0]
    assert chain.startswith("mul<fp32> vectorized → add<fp32> vectorized → ")
    assert chain.endswith(f"→ {len(row.kernels) - 8} more")
    page = render_html(document)
    assert '<details id="fusion">' in page
