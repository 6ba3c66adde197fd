"""The page in a browser: what it shows, what its controls do, and what it never does."""

import csv
import io
import os
from pathlib import Path

import pytest

from profkit.rendering.html import render_html
from tests.rendering.sample_reports import HOSTILE, SAMPLES, compute_bound
from tests.rendering.samples import MS, gpt_kernels, kernel, phase

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
sync_api = pytest.importorskip(
    "playwright.sync_api", reason="SKIPPED LOUDLY: no playwright, the page is not tried in a browser"
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not CHROMIUM.exists(),
        reason=f"SKIPPED LOUDLY: no browser at {CHROMIUM}, the page is not tried in one",
    ),
]
READY = "html[data-ready=true]"
ROWS = "#kernel-table tbody > tr[data-key]"


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


def open_page(chromium, folder, result, complaints, width=1280, measured=False, **options):
    """Opens a result's page; whatever it complains of or asks for is added to ``complaints``."""
    path = folder / f"report{len(list(folder.iterdir()))}.html"
    path.write_text(render_html(result), "utf-8")
    page = chromium.new_context(viewport={"width": width, "height": 900}, **options).new_page()
    page.set_default_timeout(20_000)
    page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on(
        "request",
        lambda request: (
            None if request.url == path.as_uri() else complaints.append(f"request: {request.url[:80]}")
        ),
    )
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    if measured:
        page.session = page.context.new_cdp_session(page)
        page.session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    page.wait_for_selector(READY)
    return page


@pytest.fixture
def show(chromium, tmp_path):
    """Opens pages; afterwards they must have complained of nothing and asked for nothing."""
    complaints, pages = [], []

    def show(result, **options):
        pages.append(open_page(chromium, tmp_path, result, complaints, **options))
        return pages[-1]

    show.complaints = complaints
    yield show
    for page in pages:
        page.context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def shared_page(chromium, tmp_path_factory):
    complaints = []
    page = open_page(chromium, tmp_path_factory.mktemp("page"), compute_bound(), complaints)
    yield page, complaints
    page.context.close()


@pytest.fixture
def page(shared_page):
    """The page of the compute-bound sample, as it was when it was opened."""
    page, complaints = shared_page
    page.click("#clear")
    yield page
    assert complaints == []


def busy_seconds(page):
    """What the page's main thread has computed so far: the machine's other work does not count."""
    return {
        metric["name"]: metric["value"] for metric in page.session.send("Performance.getMetrics")["metrics"]
    }["TaskDuration"]


def titles(page):
    return page.locator(f"{ROWS} .kernel-name bdi").all_inner_texts()


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_opens_draws_all_its_plots_and_fits_a_phone(show, name):
    page = show(SAMPLES[name](), width=390)
    page.evaluate("profkit.plots.drawAll()")
    assert page.locator("figure.plot:not([hidden])").count() == page.evaluate("profkit.plots.count")
    assert page.locator("figure.plot:not([hidden]) .main-svg").count() >= page.evaluate("profkit.plots.count")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_plots_are_unpacked_only_when_one_comes_into_view(show):
    page = show(compute_bound())
    assert page.evaluate("typeof window.Plotly") == "undefined"
    page.locator("#plot-roofline").scroll_into_view_if_needed()
    page.wait_for_selector("#plot-roofline[data-drawn]")
    assert page.evaluate("typeof window.Plotly") == "object"


def test_a_policy_forbids_every_request_and_every_script_that_is_not_the_page_s(show):
    page = show(compute_bound())
    policy = page.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy.split("style-src")[0]
    page.evaluate(
        "window.addEventListener('securitypolicyviolation', (e) => (window.refused = e.effectiveDirective))"
    )
    assert page.evaluate("fetch('https://example.invalid/').then(() => 'sent', () => 'refused')") == "refused"
    assert page.evaluate("window.refused") == "connect-src"
    page.evaluate(
        "document.head.append(Object.assign(document.createElement('script'), { textContent: 'window.injected = 1' }))"
    )
    assert page.evaluate("window.injected") is None
    assert show.complaints  # the browser says in its console what it refused
    assert all("Content Security Policy" in complaint for complaint in show.complaints)
    show.complaints.clear()


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


def test_a_phase_chosen_in_the_phase_table_filters_kernels_and_gaps(show):
    result = compute_bound()
    result.idle["gaps"].append(result.idle["gaps"][0] | {"phase": "optimizer"})
    page = show(result)
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
    assert cast.locator("td").nth(2).inner_text().startswith("≈")
    assert page.locator("#gap-table tbody tr:visible").count() == len(result.idle["gaps"]) - 1
    assert page.locator("#selection").is_visible()
    assert page.locator("#phase").input_value() == "0"
    page.click("#selection button")
    assert len(titles(page)) == 10
    assert page.locator("#gap-table tbody tr:visible").count() == len(result.idle["gaps"])


def test_a_chosen_phase_dims_the_rest_of_the_timeline(show):
    result = compute_bound()
    lanes = result.timeline["lanes"]
    for lane in lanes:
        lane["bars"] = [[*bar, "forward" if bar[0] < 4 * MS else "backward"] for bar in lane["bars"]]
    lanes[1]["bars"][0][4] = None
    page = show(result)
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
    result = compute_bound()
    result.operators.extend(result.operators[0] | {"name": f"aten::op{i}", "gpu_ns": MS} for i in range(60))
    result.operators.append(result.operators[0] | {"name": "aten::tiny", "phase": "optimizer", "gpu_ns": 5})
    page = show(result)
    rows = page.locator("#operator-table tbody tr:visible th")
    assert rows.count() == 40
    page.click("[data-phase] >> text=optimizer")
    assert rows.all_inner_texts() == ["aten::tiny"]
    page.click("#selection button")
    assert rows.count() == 40


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


def with_places(result):
    """Kernels told apart by step, device and module: a third of each in step 1, the rest in step 2, nothing in step 3."""
    for row in result.kernels:
        third = row["total_ns"] // 3
        ids = [str(device["id"]) for device in result.devices]
        row["steps"] = {"step 2": row["total_ns"] - third, "step 1": third}
        row["devices"] = dict.fromkeys(ids[1:], 0) | {ids[0]: row["total_ns"]}
        row["modules"] = {"GPT_0": row["count"] - 1} if row["count"] > 1 else {}
    return result


def milliseconds_of(page):
    return float(page.inner_text("#summary").split(", ")[1].split(" ms")[0].replace("\u202f", ""))


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
    result = compute_bound()
    result.kernels[3] |= {"name": "=1+1", "short_name": "=1+1"}
    page = show(result)
    with page.expect_download() as download:
        page.click("#save-csv")
    text = Path(download.value.path()).read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert sum(int(row["total_ns"]) for row in rows) == sum(row["total_ns"] for row in result.kernels)
    assert "'=1+1" in [row["kernel"] for row in rows]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy-csv")
    page.wait_for_selector("#copy-csv:has-text('Copied')")


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


def test_the_largest_allocations_are_bars_of_their_size_that_do_not_cover_each_other(show):
    page = show(compute_bound())
    page.evaluate("profkit.plots.drawAll()")
    traces = page.evaluate(
        "profkit.plots.drawn('plot-largest').map(({name, base, x, y, width, customdata}) => ({name, base, x, y, width, customdata}))"
    )
    bars = {trace["name"]: {key: trace[key][0] for key in trace if key != "name"} for trace in traces}
    # The parameter is there before and after the history of 199 ms: it lies lowest.
    assert (bars["parameter"]["base"], bars["parameter"]["x"], bars["parameter"]["y"]) == (0, 199, 1)
    assert (bars["activation"]["base"], bars["activation"]["x"]) == (10, 50)
    assert bars["activation"]["y"] == 2 + 5 / 2
    assert bars["gradient"]["y"] == 2 + 1 / 2  # when it comes, the activation has gone
    assert [bars[name]["width"] for name in ("parameter", "activation", "gradient")] == [2, 5, 1]
    assert bars["activation"]["customdata"][:2] == ["model.py:41 forward", "5.00 GiB"]
    assert bars["gradient"]["customdata"][0] == "&lt;b&gt;model.py&lt;/b&gt;:70"
    assert bars["parameter"]["customdata"][2:] == ["before the history", "not freed"]
    assert page.inner_text("#plot-largest .more").startswith(
        "7 smaller or shorter allocations are not drawn; together they hold at most 3.00 GiB"
    )


def test_allocations_of_a_history_without_times_are_drawn_over_its_events(show):
    result = compute_bound()
    result.memory["curve"] = result.memory["curve"] | {"time_ns": None, "event": list(range(200))}
    page = show(result)
    page.evaluate("profkit.plots.drawAll()")
    ends = page.evaluate(
        "profkit.plots.drawn('plot-largest').flatMap(({base, x}) => base.map((b, i) => b + x[i]))"
    )
    assert sorted(ends) == [30, 40, 90]


def test_memory_by_step_shows_the_first_and_last_steps_and_counts_the_others(page):
    table = page.locator("#memory table", has_text="By step")
    assert table.locator("tbody th").all_inner_texts() == [f"step {i}" for i in (*range(6), *range(14, 20))]
    assert "8 steps more are not shown" in page.inner_text("#memory")


def test_on_a_phone_each_number_of_a_wide_table_stands_by_its_name_and_none_is_cut(show):
    page = show(SAMPLES["multi_rank"](), width=390)
    cut = "[...document.querySelectorAll('table.cards td, table.cards th')].filter((cell) => cell.checkVisibility() && !cell.closest('thead') && cell.getBoundingClientRect().right > 390).length"
    assert page.locator("table.cards").count() == 4
    assert page.evaluate(cut) == 0
    label = "(cell) => getComputedStyle(cell, '::before').content"
    first = page.locator(ROWS).first.locator("td")
    assert [first.nth(i).evaluate(label) for i in (0, 1, 3)] == ['"Time, ms"', '"Share"', '"Mean, µs"']
    page.click("[data-sort=count]")
    assert page.locator("th:has([data-sort=count])").get_attribute("aria-sort") == "descending"
    page.locator(f"{ROWS} .kernel-name").first.click()
    assert page.locator("tr.detail").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_the_first_screen_says_what_to_do_first_and_what_it_brings(show):
    page = show(compute_bound())
    first = page.locator(".first")
    assert (
        first.inner_text()
        == "Do first Compile the model with torch.compile: saves 12.4 ms per step, 1.29× likely"
    )
    assert first.bounding_box()["y"] < 450
    assert first.locator("a").get_attribute("href") == "#advice"


def test_the_roofline_says_which_share_of_the_time_it_cannot_show(page):
    known = [row for row in gpt_kernels() if row["flop"] and row["dram_bytes"] and row["tflops"]]
    missing = 1 - sum(row["share"] for row in known)
    assert f"Kernels with {missing * 100:.1f} % of busy time are not here" in page.inner_text(
        "#plot-roofline figcaption"
    )


def test_the_theme_follows_the_system_and_the_button(show):
    page = show(compute_bound(), color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.click("#theme")
    assert page.inner_text("#theme") == "Theme: light"
    light = page.evaluate(background)
    page.click("#theme")
    assert page.evaluate(background) == dark != light


def test_hostile_names_are_text_everywhere(show):
    page = show(SAMPLES["hostile"]())
    page.evaluate("profkit.plots.drawAll()")
    for group in ("shape", "operators", "family", "phases", "dtype", "name"):
        page.select_option("#group", group)
        for index in range(page.locator(f"{ROWS} .kernel-name").count()):
            page.locator(f"{ROWS} .kernel-name").nth(index).click()
    for index in range(page.locator("[data-phase]").count()):
        page.locator("[data-phase]").nth(index).click()
    page.click("#selection button")
    assert page.evaluate("window.__pwned") is None
    assert page.locator("img, iframe, a[href^='javascript']").count() == 0
    assert page.locator("tr.detail code").all_inner_texts()[0] == HOSTILE[0]
    assert HOSTILE[6] in page.locator("tr.detail code").all_inner_texts()  # ten kilobytes, on demand
    shown = page.inner_text("main")
    assert "\\u202e" in shown
    assert "\u202e" not in shown


def test_text_has_contrast_in_both_themes(show):
    script = """() => {
      const luminance = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const parse = (color) => color.match(/[\\d.]+/g).map(Number);
      const behind = (node) => { for (; node; node = node.parentElement) { const c = parse(getComputedStyle(node).backgroundColor); if (c.length < 4 || c[3] > 0) return c.slice(0, 3); } };
      const found = [];
      for (const node of document.querySelectorAll("main *, header *")) {
        if (![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()) || !node.checkVisibility() || node.closest("svg, .unseen, .out, [hidden]")) continue;
        const style = getComputedStyle(node);
        const [a, b] = [luminance(parse(style.color).slice(0, 3)), luminance(behind(node))].sort((x, y) => y - x);
        const large = parseFloat(style.fontSize) >= 24;
        if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5)) found.push(`${node.className || node.tagName} ${style.color} ${((a + 0.05) / (b + 0.05)).toFixed(2)} ${node.textContent.slice(0, 30)}`);
      }
      return [...new Set(found)];
    }"""
    for name, scheme in (
        ("compute_bound", "light"),
        ("compute_bound", "dark"),
        ("launch_bound", "dark"),
        ("unknown", "light"),
    ):
        page = show(SAMPLES[name](), color_scheme=scheme)
        assert page.evaluate(script) == [], (name, scheme)


def test_headings_tables_and_controls_have_names_for_a_screen_reader(page):
    assert page.locator("main, header, nav[aria-label], footer").count() == 4
    assert page.locator("h1").count() == 1
    assert page.locator("table:not(:has(th[scope=col]))").count() == 0
    unnamed = "[...document.querySelectorAll('button, select, input, a')].filter((node) => !(node.textContent.trim() || node.ariaLabel || node.labels?.length)).length"
    assert page.evaluate(unnamed) == 0
    assert page.locator("svg[role=img]:not([aria-label])").count() == 0


def largest_report():
    """More rows, phases, bars and longer names than any recording has."""
    result = compute_bound()
    long = "void at::native::vectorized_elementwise_kernel<" + "std::tuple<float, " * 400
    result.kernels.extend(
        kernel(
            f"{long}{i}>",
            "elementwise",
            "memory",
            100,
            5.0,
            short_name=f"elementwise {i}",
            phases={f"phase {i % 300}": 500_000},
            flop=10**9 + i,
            dram_bytes=10**8,
            tflops=2.0,
        )
        for i in range(5000)
    )
    result.phases.extend(phase(f"phase {i}", 1, 1, "memory", memory=1) for i in range(300))
    result.timeline["lanes"][2]["bars"] = [[i * 1000, 900, f"kernel {i}", "compute"] for i in range(50_000)]
    result.memory["curve"] = {
        "time_ns": list(range(200_000)),
        "allocated_bytes": [i % 977 << 20 for i in range(200_000)],
        "reserved_bytes": [1 << 30] * 200_000,
    }
    return result  # fmt: skip


def test_the_page_stays_small_and_quick_whatever_the_input(show):
    result = largest_report()
    assert len(render_html(result).encode()) < 6_000_000
    page = show(result, measured=True)
    page.fill("#search", "elementwise")
    assert len(titles(page)) == 25
    assert busy_seconds(page) < 2
    page.click("#clear")
    assert "smaller rows" in page.inner_text("#kernels-left")
    page.click("#show-all")
    assert len(titles(page)) > 900
    page.evaluate("profkit.plots.drawAll()")


def test_a_page_without_plots_does_not_carry_their_library():
    assert len(render_html(SAMPLES["unknown"]())) < 200_000


def test_printing_draws_plots_that_were_never_on_the_screen(show):
    page = show(compute_bound())
    count = page.evaluate("profkit.plots.count")
    page.evaluate(
        "window.printed = []; window.print = () => window.printed.push(document.querySelectorAll('.plot[data-drawn] .main-svg').length); 0"
    )
    page.keyboard.press("Control+p")
    for _ in range(100):
        if page.evaluate("window.printed.length"):
            break
        page.wait_for_timeout(100)
    assert page.evaluate("window.printed[0]") >= count > 4
    assert page.locator(".plot[data-drawn]").count() == count


def test_the_other_plots_follow_the_first_while_the_page_is_idle(show):
    page = show(compute_bound())
    page.locator("#plot-roofline").scroll_into_view_if_needed()
    for _ in range(100):
        if page.locator(".plot[data-drawn]").count() == page.evaluate("profkit.plots.count"):
            break
        page.wait_for_timeout(100)
    assert page.locator(".plot[data-drawn]").count() == page.evaluate("profkit.plots.count")


def test_paper_says_which_plots_it_lacks_when_their_library_was_not_unpacked(show):
    page = show(compute_bound())
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    said = "getComputedStyle(document.querySelector('#plot-roofline'), '::after').content"
    assert "not on paper" in page.evaluate(said)
    page.emulate_media(media="screen")
    assert page.evaluate(said) == "none"
    page.evaluate("profkit.plots.drawAll()")
    page.emulate_media(media="print")
    assert page.evaluate(said) == "none"


@pytest.mark.parametrize("name", ["compute_bound", "snapshot_only"])
def test_without_scripts_the_page_says_so_and_keeps_its_tables(chromium, tmp_path, name):
    path = tmp_path / "page.html"
    path.write_text(render_html(SAMPLES[name]()), "utf-8")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert "Scripts are off" in page.inner_text("main > noscript, main > p")
    assert page.locator("#memory table").first.is_visible()
    assert not page.locator("#timeline, #theme, #filters, .plot").filter(visible=True).count()
    context.close()


def test_ranks_say_who_waits_and_who_holds_the_others_up(show):
    result = SAMPLES["multi_rank"]()
    result.ranks[0] |= {"waiting_ns": 9 * MS, "exposed_waiting_ns": 6 * MS, "holds_up_ns": 0}
    result.ranks[1] |= {"waiting_ns": 0, "exposed_waiting_ns": 0, "holds_up_ns": 6 * MS}
    result.communication[0] |= {"waiting_ns": 12 * MS, "transfer_bus_gbs": 300.25}
    page = show(result)
    cells = page.locator("#ranks table", has_text="Holds up").locator("tbody tr")
    assert cells.nth(0).locator("td").all_inner_texts()[2:4] == ["2.000", "0.000"]
    assert cells.nth(1).locator("td").all_inner_texts()[2:4] == ["0.000", "2.000"]
    assert "300.2" in page.locator("#ranks table", has_text="Bus, moving").inner_text()
    assert "Holds up" not in show(SAMPLES["multi_rank"]()).inner_text("#ranks")


def test_on_paper_plots_are_light_and_fit_the_sheet(show):
    page = show(compute_bound(), color_scheme="dark")
    page.evaluate("profkit.plots.drawAll()")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert (
        page.evaluate("document.querySelector('#plot-roofline .main-svg').getBoundingClientRect().width")
        == 700
    )
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "auto"
    width = "document.querySelector('#plot-roofline .main-svg').getBoundingClientRect().width"
    for _ in range(50):  # Playwright's own waiting evaluates text, which the page's policy forbids
        if page.evaluate(width) > 900:
            break
        page.wait_for_timeout(100)
    assert page.evaluate(width) > 900
