"""The kernel table of the page in a browser: filters, groups, search, and what a choice does elsewhere."""

import csv
import io
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from profkit.rendering.html import render_html
from tests.rendering.conftest import CHROMIUM
from tests.rendering.sample_reports import SAMPLES, compute_bound
from tests.rendering.samples import MS, edited, gpt_kernels

pytestmark = pytest.mark.browser
ROWS = "#kernel-table tbody > tr[data-key]"


def titles(page):
    return page.locator(f"{ROWS} .kernel-name bdi").all_inner_texts()


def with_places(report):
    """Kernels told apart by step, device and module: a third of each in step 1, the rest in step 2, nothing in step 3."""

    def change(values):
        ids = [str(device["id"]) for device in values["devices"]]
        for row in values["kernels"]:
            third = row["total_ns"] // 3
            row["steps"] = {"step 2": row["total_ns"] - third, "step 1": third}
            row["devices"] = dict.fromkeys(ids[1:], 0) | {ids[0]: row["total_ns"]}
            row["modules"] = {"GPT_0": row["count"] - 1} if row["count"] > 1 else {}

    return edited(report, change)


def milliseconds_of(page):
    return float(page.inner_text("#summary").split(", ")[1].split(" ms")[0].replace("\u202f", ""))


def test_launch_shapes_are_united_by_name_and_sorted_by_any_column(page):
    assert titles(page)[0].startswith("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT")
    assert len(titles(page)) == len({row["name"] for row in gpt_kernels()})
    for column, key in (("count", 3), ("mean_ns", 4), ("share", 2)):
        for direction in ("descending", "ascending"):
            page.click(f"[data-sort={column}]")
            cells = page.locator(f"{ROWS} > td:nth-of-type({key})").all_inner_texts()
            numbers = [float(cell.replace("%", "").replace("\u202f", "")) for cell in cells]
            assert numbers == sorted(numbers, reverse=direction == "descending")
            assert page.locator(f"th:has([data-sort={column}])").get_attribute("aria-sort") == direction
    page.click("[data-sort=title]")
    assert titles(page) == sorted(titles(page), key=str.lower)


def test_what_is_unknown_is_last_whichever_way_a_column_is_sorted(page):
    for _ in range(2):
        page.click("[data-sort=efficiency]")
        cells = [
            cell.split("\n")[0] for cell in page.locator(f"{ROWS} > td:nth-of-type(6)").all_inner_texts()
        ]
        assert cells[-2:] == ["–", "–"]
        assert "–" not in cells[:-2]


def test_search_takes_a_regular_expression_and_says_when_it_is_none(page):
    page.fill("#search", "^nvjet.*(NNT|NTN)$")
    assert len(titles(page)) == 2
    page.fill("#search", "aten::gelu")
    assert titles(page) == ["vectorized_elementwise_kernel"]
    page.fill("#search", "(")
    assert page.locator("#search").get_attribute("aria-invalid") == "true"
    assert "regular expression" in page.inner_text("#summary")
    page.fill("#search", "no such kernel")
    assert "nothing matches" in page.inner_text("#summary")
    page.click("#clear")
    assert len(titles(page)) == 10


def test_filters_by_family_bound_and_device(show):
    page = show(SAMPLES["multi_rank"]())
    page.select_option("#bound", "communication")
    assert [title.split("(")[0] for title in titles(page)] == ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL"]
    page.click("#clear")
    page.select_option("#family", "gemm")
    assert all(title.startswith("nvjet") for title in titles(page))
    page.click("#clear")
    everything = len(titles(page))
    page.select_option("#device", label="GPU 0, rank 0")
    assert 0 < len(titles(page)) < everything


def test_launches_of_one_device_are_not_guessed_from_its_time(show):
    def change(values):
        (row,) = (row for row in values["kernels"] if "AllReduce" in row["name"])
        most = row["total_ns"] * 9 // 10
        row["devices"] = {"0": most, "1": row["total_ns"] - most}  # one rank waits, the other comes late

    page = show(edited(SAMPLES["multi_rank"](), change))
    page.select_option("#device", label="GPU 1, rank 1")
    cells = page.locator(ROWS, has_text="AllReduce").locator("td")
    assert cells.nth(0).inner_text() not in ("–", "0.000")
    assert [cells.nth(i).inner_text() for i in (2, 3)] == ["–", "–"]


def test_a_phase_chosen_in_the_phase_table_filters_kernels_and_gaps(show):
    def change(values):
        gaps = values["idle"]["gaps"]
        gaps.append(gaps[0] | {"phase": "optimizer"})

    report = edited(compute_bound(), change)
    page = show(report)
    page.click("[data-phase] >> text=forward")
    # forward and its children: casts of its own, products of forward/attention and forward/mlp, a reduction of forward/loss
    assert sorted(titles(page)) == sorted(
        [
            "DeviceReduceSingleTileKernel",
            "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT",
            "vectorized_elementwise_kernel",
        ]
    )
    cast = page.locator(ROWS, has_text="vectorized_elementwise_kernel")
    assert cast.locator("td").nth(0).inner_text() == f"{1_300_000 / 3 / 1e6:.3f}"
    # 27 of its launches in three steps, whatever time they took.
    assert cast.locator("td").nth(2).inner_text() == "9"
    cast.locator(".kernel-name").click()
    phases = page.locator("tr.detail table", has_text="Phases").locator("tbody tr")
    assert [row.split("\t")[2] for row in phases.all_inner_texts()] == ["40", "9"]
    page.select_option("#group", "phases")
    counts = dict(
        zip(titles(page), page.locator(f"{ROWS} > td:nth-of-type(3)").all_inner_texts(), strict=True)
    )
    assert counts == {"forward/attention": "24", "forward/mlp": "12", "forward": "9", "forward/loss": "30"}
    page.select_option("#group", "operators")
    counts = dict(
        zip(titles(page), page.locator(f"{ROWS} > td:nth-of-type(3)").all_inner_texts(), strict=True)
    )
    assert counts == {"aten::addmm": "36", "aten::copy_": "9", "aten::sum": "20", "aten::mean": "10"}
    page.select_option("#group", "name")
    assert page.locator("#gap-table tbody tr:visible").count() == len(report.idle.gaps) - 1
    assert page.locator("#selection").is_visible()
    assert page.locator("#phase").input_value() == "0"
    page.click("#selection button")
    assert len(titles(page)) == 10
    assert page.locator("#gap-table tbody tr:visible").count() == len(report.idle.gaps)


def test_a_chosen_phase_dims_the_rest_of_the_timeline(show):
    def change(values):
        lanes = values["timeline"]["lanes"]
        for lane in lanes:
            lane["bars"] = [[*bar[:4], "forward" if bar[0] < 4 * MS else "backward"] for bar in lane["bars"]]
        lanes[1]["bars"][0][4] = None

    page = show(edited(compute_bound(), change))
    page.evaluate("profkit.plots.drawAll()")
    dimmed = "profkit.plots.drawn('plot-timeline').flatMap((trace) => trace.base.map((at, i) => [at, trace.marker.opacity[i] < 1]))"
    assert not any(dim for _, dim in page.evaluate(dimmed))
    page.click("[data-phase] >> text=forward")
    bars = page.evaluate(dimmed)
    assert {dim for at, dim in bars if at >= 4} == {True}
    assert sum(dim for at, dim in bars if at < 4) == 1  # the one of no phase
    page.click("#selection button")
    assert not any(dim for _, dim in page.evaluate(dimmed))


def test_a_chosen_phase_filters_operators_and_shows_those_too_small_for_the_whole(show):
    def change(values):
        first, *_ = rows = values["operators"]
        rows.extend(first | {"name": f"aten::op{i}", "gpu_ns": MS} for i in range(60))
        rows.append(first | {"name": "aten::tiny", "phase": "optimizer", "gpu_ns": 5})

    page = show(edited(compute_bound(), change))
    rows = page.locator("#operator-table tbody tr:visible th")
    assert rows.count() == 40
    page.click("[data-phase] >> text=optimizer")
    assert rows.all_inner_texts() == ["aten::tiny"]
    left = page.locator("#operators .more")
    assert not left.is_visible()
    page.click("#selection button")
    assert rows.count() == 40
    assert left.inner_text() == "22 operators more are not shown."


@pytest.mark.parametrize(
    ("group", "first", "rows"),
    [("family", "gemm", 8), ("phases", "backward", 7), ("operators", "aten::mm", 10), ("shape", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", 11), ("bound", "compute", 4), ("dtype", "bf16", 3)],
)  # fmt: skip
def test_groups_divide_the_same_time(page, group, first, rows):
    total = page.inner_text("#summary").split(", ")[1]
    page.select_option("#group", group)
    assert titles(page)[0] == first
    assert len(titles(page)) == rows
    assert page.inner_text("#summary").split(", ")[1] == total


def test_a_step_has_its_own_part_of_each_kernel_and_shares_of_its_own_busy_time(show):
    page = show(with_places(compute_bound()))
    share = page.locator(f"{ROWS} > td:nth-of-type(2)").first
    per_step, share_of_all = milliseconds_of(page), share.inner_text()
    assert page.locator("#step option").all_inner_texts() == ["all", "step 1", "step 2", "step 3"]
    page.select_option("#step", label="step 3")
    assert "nothing matches" in page.inner_text("#summary")
    page.select_option("#step", label="step 1")
    assert milliseconds_of(page) == pytest.approx(per_step, abs=0.002)  # a third of three steps is one step's
    assert share.inner_text() == share_of_all
    assert "in step 1" in page.inner_text("#summary")
    launches = page.locator(f"{ROWS} > td:nth-of-type(3)")
    assert set(launches.all_inner_texts()) == {
        "–"
    }  # launches are counted by phase, operator and module, not by step
    page.select_option("#step", label="step 2")
    assert milliseconds_of(page) == pytest.approx(2 * per_step, abs=0.002)
    page.select_option("#group", "steps")
    assert titles(page) == ["step 2"]
    page.select_option("#step", "")
    assert titles(page) == ["step 2", "step 1"]
    assert milliseconds_of(page) == per_step


def test_a_device_and_a_phase_chosen_together_are_an_estimate_and_say_so(show):
    page = show(with_places(SAMPLES["multi_rank"]()))
    page.select_option("#device", label="GPU 1, rank 1")
    assert "nothing matches" in page.inner_text("#summary")
    page.select_option("#device", label="GPU 0, rank 0")
    assert "on GPU 0, rank 0" in page.inner_text("#summary")
    assert "estimated" not in page.inner_text("#summary")
    page.select_option("#step", label="step 1")
    assert "estimated" in page.inner_text("#summary")


def test_kernels_are_grouped_by_module_and_a_row_names_its_modules(show):
    page = show(with_places(compute_bound()))
    total = milliseconds_of(page)
    page.select_option("#group", "modules")
    assert titles(page) == ["GPT_0", "no module"]
    whole = sum(row["count"] for row in gpt_kernels())
    launches = page.locator(f"{ROWS} > td:nth-of-type(3)").all_inner_texts()
    assert launches == [f"{(whole - 11) / 3:.1f}", f"{11 / 3:.1f}"]
    assert milliseconds_of(page) == total
    page.select_option("#group", "name")
    page.locator(f"{ROWS} .kernel-name").first.click()
    assert "GPT_0" in page.inner_text("tr.detail")


def test_what_the_recording_does_not_tell_is_no_filter_and_no_group(page):
    assert not page.locator("#step").is_visible()
    assert not page.locator("#device").is_visible()
    assert page.locator("#group option[value=modules], #group option[value=steps]").count() == 0


def test_a_row_opens_to_its_name_shapes_operators_phases_and_lines_by_keyboard(page):
    page.focus(f"{ROWS} .kernel-name")
    page.keyboard.press("Enter")
    assert page.locator(f"{ROWS} .kernel-name").first.get_attribute("aria-expanded") == "true"
    detail = page.inner_text("tr.detail")
    for text in ("2 × 66 × 1", "4 × 33 × 1", "aten::mm", "backward", "model.py:41", "modelled"):
        assert text in detail
    page.keyboard.press("Enter")
    assert page.locator("tr.detail").count() == 0


def test_the_table_is_saved_as_csv_that_a_spreadsheet_cannot_run(show):
    named = {"name": "=1+1", "short_name": "=1+1"}
    report = edited(compute_bound(), lambda values: values["kernels"][3].update(named))
    page = show(report)
    with page.expect_download() as download:
        page.click("#save-csv")
    text = Path(download.value.path()).read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert sum(int(row["total_ns"]) for row in rows) == sum(row.total_ns for row in report.kernels)
    assert "'=1+1" in [row["kernel"] for row in rows]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy-csv")
    page.wait_for_selector("#copy-csv:has-text('Copied')")


@pytest.fixture
def served(tmp_path):
    """A folder as a web server shows it, and its port."""
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield tmp_path, server.server_address[1]
        server.shutdown()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.mark.parametrize("place", ["file", "server", "notebook"])
def test_copy_and_download_work_wherever_the_page_is_opened(chromium, served, place):
    """As a file, from a server without encryption, where pages have no clipboard, and in a frame of another page."""
    folder, port = served
    (folder / "r.html").write_text(render_html(compute_bound()), "utf-8")
    (folder / "frame.html").write_text('<iframe src="r.html" width=1200 height=800></iframe>')
    browser = chromium.browser_type.launch(
        executable_path=str(CHROMIUM), args=["--no-sandbox", f"--host-resolver-rules=MAP shown.test 127.0.0.1:{port}"]
    )  # fmt: skip
    try:
        page = browser.new_page()
        address = {
            "file": (folder / "r.html").as_uri(),
            "server": "http://shown.test/r.html",
            "notebook": "http://shown.test/frame.html",
        }[place]
        page.goto(address)
        shown = page.frames[-1]
        shown.wait_for_selector("html[data-ready=true]")
        with page.expect_download() as download:
            shown.click("#save-csv")
        saved = Path(download.value.path()).read_text("utf-8")
        shown.click("#copy-csv")
        shown.wait_for_selector("#copy-csv:has-text('Copied')")
        shown.evaluate(
            "document.body.append(Object.assign(document.createElement('textarea'), { id: 'paste' }))"
        )
        shown.focus("#paste")
        page.keyboard.press("Control+V")
        assert shown.input_value("#paste") == saved
        shown.evaluate(
            "document.execCommand = () => false; Object.defineProperty(navigator, 'clipboard', { value: undefined })"
        )
        shown.wait_for_selector("#copy-csv:has-text('Copy CSV')")
        shown.click("#copy-csv")
        shown.wait_for_selector("#copy-csv:has-text('Not copied')")
    finally:
        browser.close()


def test_a_point_of_the_roofline_opens_its_row(page):
    page.evaluate("profkit.plots.drawAll()")
    box = page.locator("#plot-roofline > div")
    page.fill("#search", "elementwise")
    box.evaluate("(node) => node.emit('plotly_click', { points: [{ customdata: [0] }] })")
    assert (
        page.locator(f"{ROWS} .kernel-name[aria-expanded=true]")
        .inner_text()
        .startswith("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT")
    )
    assert page.locator("tr.detail").is_visible()


def test_the_roofline_says_which_share_of_the_time_it_cannot_show(page):
    known = [row for row in gpt_kernels() if row["flop"] and row["dram_bytes"] and row["tflops"]]
    missing = 1 - sum(row["total_ns"] for row in known) / sum(row["total_ns"] for row in gpt_kernels())
    assert f"Kernels with {missing * 100:.1f}\u00a0% of the kernels' time are not here" in page.inner_text(
        "#plot-roofline figcaption"
    )
