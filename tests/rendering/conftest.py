"""Pages in a browser, for the tests of what they show and do."""

import os
from pathlib import Path

import pytest

from profkit.rendering.html import render_html
from tests.rendering.sample_reports import compute_bound

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
READY = "html[data-ready=true]"


@pytest.fixture(scope="module")
def chromium():
    if not CHROMIUM.exists():
        pytest.skip(f"SKIPPED LOUDLY: no browser at {CHROMIUM}, the page is not tried in one")
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="SKIPPED LOUDLY: no playwright, the page is not tried in a browser"
    )
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


def open_page(chromium, folder, report, complaints, width=1280, measured=False, **options):
    """Opens a report's page; whatever it complains of or asks for is added to ``complaints``."""
    path = folder / f"report{len(list(folder.iterdir()))}.html"
    path.write_text(render_html(report), "utf-8")
    page = chromium.new_context(viewport={"width": width, "height": 900}, **options).new_page()
    page.set_default_timeout(120_000)  # only against hanging: how long a page takes is measured elsewhere
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

    def show(report, **options):
        pages.append(open_page(chromium, tmp_path, report, complaints, **options))
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
