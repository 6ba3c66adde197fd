import math
import re

import msgspec
import pytest

import profkit
from profkit.model.report import PhaseRow
from profkit.model.report_verdict import Step
from profkit.rendering import RENDERERS
from profkit.rendering.digest import facts, kernels_by_name, launch_parts, phase_tree, scale_of
from profkit.rendering.html import _ASSETS, render_html
from profkit.rendering.page_cells import _TONES
from tests.rendering.sample_reports import SAMPLES, compute_bound, multi_rank, unknown
from tests.rendering.samples import MS, edited, gpt_kernels, steps, typed
from tests.shared import DATA


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("form", RENDERERS)
def test_what_need_not_be_there_may_be_absent(name, form):
    report = SAMPLES[name]()
    optional = {f.name: f.default for f in msgspec.structs.fields(type(report)) if not f.required}
    assert {"timeline", "advice", "utilisation"} & set(optional)
    assert RENDERERS[form](msgspec.structs.replace(report, **optional, memory=None, advice=()))


def test_a_scale_is_one_step_of_one_device_where_there_are_steps():
    assert (scale_of(compute_bound()).divisor, scale_of(compute_bound()).label) == (3, "per step")
    assert (scale_of(multi_rank()).divisor, scale_of(multi_rank()).label) == (6, "per step and device")
    assert (scale_of(unknown()).divisor, scale_of(unknown()).label) == (1, "in all")
    assert scale_of(compute_bound()).count(9) == "3"
    assert scale_of(compute_bound()).count(10) == "3.3"


def test_a_phase_lies_under_the_longest_path_that_it_continues_even_when_names_hold_slashes():
    paths = ["a", "b", "a/x", "a/x/y/z", "c/d"]
    tree = phase_tree([typed(PhaseRow, {"path": path}) for path in paths])
    assert [(depth, row.path) for depth, row in tree] == [
        (0, "a"),
        (1, "a/x"),
        (2, "a/x/y/z"),
        (0, "b"),
        (0, "c/d"),
    ]


def test_a_kernel_of_several_shapes_has_the_bound_and_efficiency_of_its_larger_side():
    rows = [
        {"total_ns": 600, "count": 6, "bound": "compute", "efficiency": 0.5, "unsaturated": False},
        {"total_ns": 200, "count": 1, "bound": "compute", "efficiency": 0.1, "unsaturated": True},
        {"total_ns": 700, "count": 9, "bound": "memory", "efficiency": 0.9, "unsaturated": False},
    ]
    (united,) = kernels_by_name(edited(compute_bound(), lambda values: values.update(kernels=rows)))
    assert (united.bound, united.total_ns, united.count, united.unsaturated) == ("compute", 1500, 16, False)
    assert united.efficiency is not None
    assert math.isclose(united.efficiency, (600 * 0.5 + 200 * 0.1) / 800)


def test_the_bar_of_the_page_is_as_long_as_its_shares():
    page = render_html(compute_bound())
    bar = re.search(r'<div class="hero-bar">(.*?)</div>', page, re.S)[1]
    shares = compute_bound().verdict.shares
    drawn = {
        name: float(length)
        for name, length in re.findall(r'class="tone-(\w+)" x="[\d.]+" width="([\d.]+)"', bar)
    }
    assert drawn == {
        name: pytest.approx(1000 * ns / sum(shares.values()), abs=0.01) for name, ns in shares.items() if ns
    }


def test_of_many_steps_the_first_and_the_last_are_shown_and_the_others_counted():
    many = steps(500, compute_bound().verdict.shares)
    page = render_html(edited(compute_bound(), lambda values: values["window"].update(steps=many)))
    assert "461 in the middle not shown" in page
    assert "<bdi>step 0</bdi>" in page
    assert "<bdi>step 500</bdi>" in page
    assert "<bdi>step 250</bdi>" not in page


def test_gaps_that_are_not_shown_are_counted_with_those_that_the_report_leaves_out():
    def change(values):
        idle = values["idle"]
        idle["gaps"], idle["gaps_left_out"] = idle["gaps"][:1] * 100, 1234

    assert "1\u202f319 gaps more are not shown" in render_html(edited(compute_bound(), change))


def test_the_bar_and_the_rows_below_it_have_one_order_and_no_specks():
    def change(values):
        values["verdict"]["shares"] |= {"memory": 50_000 * MS, "other": 1}

    page = render_html(edited(compute_bound(), change))
    bar = re.search(r'<div class="hero-bar">(.*?)</div>', page, re.S)[1]
    legend = re.search(r'<table class="legend">(.*?)</table>', page, re.S)[1]
    drawn = re.findall(r'class="tone-(\w+)" x=', bar)
    assert drawn[0] == "memory"
    assert "other" not in drawn
    assert re.findall(r'class="chip tone-(\w+)"', legend) == drawn


def test_every_share_cause_and_use_of_memory_has_a_colour_on_the_page_and_in_a_notebook():
    """One without is not drawn: its part of a bar is empty."""
    sheet = (_ASSETS / "report.css").read_text()
    styled = set(re.findall(r"\.tone-([\w-]+)(?=[^{}]*\{ --tone: var\((--[\w-]+)\))", sheet))
    defined = set(re.findall(r"(--[\w-]+): light-dark", sheet))
    assert set(_TONES) <= {name for name, _ in styled}
    assert {variable for _, variable in styled} <= defined


def test_a_page_without_a_gpu_has_no_columns_of_one():
    page = profkit.analyze(DATA / "ranks/gloo_ddp_rank0.json.gz").render("html")
    steps, operators = (
        re.search(rf'<section id="{name}"(.*?)</section>', page, re.S)[1] for name in ("steps", "operators")
    )
    assert ">Host<" in steps
    assert ">Host<" in operators
    assert not re.search(r">Device<|>GPU busy<|>Shares<", steps)
    assert ">GPU<" not in operators


def test_confidence_says_what_it_rests_on_and_advice_how_sure_it_is():
    page = render_html(compute_bound())
    assert (
        "<strong>Confidence:</strong> modelled (kernel bounds are computed from the shapes in the file)."
        in page
    )
    assert '<span class="tag">high confidence</span>' in page


def test_figures_of_the_recording_say_so_where_the_verdict_is_of_the_step_without_a_profiler():
    def change(values):
        shares = dict(values["verdict"]["shares"])
        values["verdict"]["unprofiled_shares"] = {name: ns // 10 for name, ns in shares.items()}
        likely = sum(shares.values()) // 10
        values["step"] = {
            "recorded_ns": likely * 2, "source": "measured",
            "unprofiled_ns": {"low": likely, "likely": likely, "high": likely},
        }  # fmt: skip

    assert "busy, with the profiler</dt>" in render_html(edited(compute_bound(), change))
    assert "with the profiler</dt>" not in render_html(compute_bound())


@pytest.mark.parametrize(
    ("mfu", "hfu", "told"),
    [(0.31, 0.31, "MFU 31 % of the peak of the types used"), (0.31, 0.4, "MFU 31 %, HFU 40 % of the peak of the types used"),
     (None, None, None)],
)  # fmt: skip
def test_the_head_says_how_much_of_the_peak_is_used(mfu, hfu, told):
    step = Step(
        recorded_ns=MS, unprofiled_ns=None, source="recorded", found_by="marks", startup_ns=None, teardown_ns=None, mfu=mfu,
        hfu=hfu,
    )  # fmt: skip

    found = facts(msgspec.structs.replace(compute_bound(), step=step))

    assert [each for each in found if "MFU" in each] == ([told] if told else [])


def test_an_option_in_a_sentence_is_code_and_markup_in_it_is_text():
    def change(values):
        values["verdict"]["caveats"] = ["<b>12 ms</b> with --plain-step."]

    page = render_html(edited(compute_bound(), change))
    assert "&lt;b&gt;12\u00a0ms&lt;/b&gt; with <code>--plain-step</code>." in page


def test_launch_parts_add_up_to_the_mean_of_the_recorded_steps_whatever_the_bar_shows():
    told = profkit.analyze(DATA / "nsys/gpt_bf16.sqlite.gz", plain_step="38.3ms").document
    sentence = launch_parts(told)
    assert sentence.startswith("Launch overhead as recorded, on average: launching ")
    parts = [
        float(number) * {"ms": 1, "µs": 1e-3}[unit]
        for number, unit in re.findall(r"([\d.]+) (ms|µs)", sentence)
    ]
    recorded = scale_of(told)(told.verdict.shares["launch"]) / 1e6
    assert sum(parts) == pytest.approx(recorded, rel=0.01)
    assert sum(parts) > told.verdict.unprofiled_shares["launch"] / 1e6 * 1.02
    assert f'<p class="quiet"><bdi>{sentence}</bdi>' in render_html(told).replace("\u202f", " ").replace(
        "\xa0", " "
    )


def test_the_page_explains_only_shares_that_it_shows():
    cpu = profkit.analyze(DATA / "../exactness/cpu_mlp.json.gz").document
    method = render_html(cpu).partition('id="method"')[2].partition("</section>")[0]
    assert "compute-bound kernels" not in method
    assert "Efficiency" not in method
    shown = render_html(compute_bound()).partition('id="method"')[2]
    assert "in compute-bound kernels" in shown
    assert "Efficiency" in shown


def test_one_row_that_is_left_out_is_told_in_the_singular():
    kernels = [{**row, "name": f"k{at}", "short_name": f"k{at}"} for at, row in enumerate(gpt_kernels() * 2)]
    report = edited(compute_bound(), lambda row: row.update(kernels=kernels[:13]))
    assert "  and 1 kernel more\n" in RENDERERS["text"](report)
