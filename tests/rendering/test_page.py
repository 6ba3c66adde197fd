"""The page in a browser: what it shows, what its controls do, and what it never does."""

import msgspec
import pytest

from profkit.rendering.html import render_html
from tests.rendering.sample_reports import HOSTILE, SAMPLES, compute_bound
from tests.rendering.samples import MS, edited, kernel, phase, shares_of, steps

pytestmark = pytest.mark.browser
ROWS = "#kernel-table tbody > tr[data-key]"


def busy_seconds(page):
    """What the page's main thread has computed so far: the machine's other work does not count."""
    return {
        metric["name"]: metric["value"] for metric in page.session.send("Performance.getMetrics")["metrics"]
    }["TaskDuration"]


def titles(page):
    return page.locator(f"{ROWS} .kernel-name bdi").all_inner_texts()


def largest_report():
    """More rows, phases, bars and longer names than any recording has."""
    return edited(compute_bound(), fill)


def fill(values):
    long = "void at::native::vectorized_elementwise_kernel<" + "std::tuple<float, " * 400
    values["kernels"].extend(
        kernel(
            f"{long}{i}>",
            "elementwise",
            "memory",
            100,
            5.0,
            short_name=f"elementwise {i}",
            phases={f"phase {i % 300}": {"ns": 500_000, "count": 100}},
            flop=10**9 + i,
            dram_bytes=10**8,
            tflops=2.0,
        )
        for i in range(5000)
    )
    values["phases"].extend(phase(f"phase {i}", 1, 1, "memory", memory=1) for i in range(300))
    values["window"]["steps"] = steps(64, shares_of(compute=58, memory=40))
    for index, row in enumerate(values["kernels"]):
        row["steps"] = {f"step {i}": row["total_ns"] // 64 for i in range(1, 65)}
        row["modules"] = {f"Block_{(index + i) % 5000}": 9 for i in range(12)}
        row["source_lines"] = {f"model.py:{index + i} forward": 9 for i in range(12)}
    values["memory"]["largest"]["rows"] *= 150
    values["timeline"]["lanes"][2]["bars"] = [
        [i * 1000, 900, f"kernel {i}", "compute", None] for i in range(50_000)
    ]
    values["memory"]["curve"] = [
        {
            "time_ns": list(range(200_000)),
            "allocated_bytes": [i % 977 << 20 for i in range(200_000)],
            "reserved_bytes": [1 << 30] * 200_000,
        }
    ]


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


def test_on_a_phone_each_number_of_a_wide_table_stands_by_its_name_and_none_is_cut(show):
    page = show(SAMPLES["multi_rank"](), width=390)
    cut = "[...document.querySelectorAll('table.cards td, table.cards th')].filter((cell) => cell.checkVisibility() && !cell.closest('thead') && cell.getBoundingClientRect().right > 390).length"
    page.evaluate("document.querySelectorAll('details').forEach((closed) => (closed.open = true))")
    wide = page.locator("table.data:has(thead th:nth-child(5))")
    assert wide.evaluate_all("tables => tables.filter((table) => !table.matches('.cards')).length") == 0
    assert {"kernel-table", "gap-table"} <= set(
        wide.evaluate_all("tables => tables.map((table) => table.id)")
    )
    assert page.locator("#products table.cards, #ranks table.cards").count() == 3
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


def test_what_to_do_first_about_a_late_rank_is_no_advice_on_the_step(show):
    late = {"rank": 1, "bound": "launch", "share": 0.3}
    report = edited(compute_bound(), lambda values: values["verdict"].update(straggler=late))
    assert (
        show(report)
        .locator(".first")
        .inner_text()
        .startswith("Do first Analyse the file of rank 1 and that of another")
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


@pytest.mark.parametrize(
    ("ranks", "named"), [((0, 3), "rank 3"), ((0, 0), "device 1"), ((0, None), "device 1")]
)
def test_of_several_devices_the_timeline_and_the_gaps_name_theirs(show, ranks, named):
    def change(values):
        values["timeline"] = msgspec.to_builtins(compute_bound().timeline) | {"device": 1}
        for device, rank in zip(values["devices"], ranks, strict=True):
            device["rank"] = rank
        values["idle"]["gaps"][0]["device"] = 1

    page = show(edited(SAMPLES["multi_rank"](), change))
    assert f"one representative step of {named}, the busiest" in page.inner_text("#timeline h2")
    assert page.locator("#gap-table tbody tr").first.locator("td").nth(1).inner_text() == named


def test_one_device_needs_no_name(page):
    assert "of device" not in page.inner_text("#timeline h2")
    assert "device" not in page.inner_text("#gap-table")


def test_ranks_say_who_waits_and_who_holds_the_others_up(show):
    def change(values):
        first, second = values["ranks"]
        first |= {"waiting_ns": 9 * MS, "exposed_waiting_ns": 6 * MS, "causes_wait_ns": 0}
        second |= {"waiting_ns": 0, "exposed_waiting_ns": 0, "causes_wait_ns": 6 * MS}
        values["communication"][0] |= {"waiting_ns": 12 * MS, "transfer_bus_gbs": 300.25}

    page = show(edited(SAMPLES["multi_rank"](), change))
    cells = page.locator("#ranks table", has_text="Causes wait").locator("tbody tr")
    assert cells.nth(0).locator("td").all_inner_texts()[2:4] == ["2.000", "0.000"]
    assert cells.nth(1).locator("td").all_inner_texts()[2:4] == ["0.000", "2.000"]
    assert "300.2" in page.locator("#ranks table", has_text="Bus, moving").inner_text()
    assert "Causes wait" not in show(SAMPLES["multi_rank"]()).inner_text("#ranks")


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
