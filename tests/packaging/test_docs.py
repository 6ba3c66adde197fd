"""The documentation: links lead somewhere, pages made from the code are fresh, and files that it names exist."""

import gzip
import os
import re
import shutil
import subprocess
import sys
import textwrap
from urllib.parse import unquote

import pytest

import profkit
from tests.packaging.conftest import ROOT

PAGES = sorted(
    page
    for page in [
        *ROOT.glob("*.md"),
        *(p for f in ("docs", "examples", "reports", "tests") for p in (ROOT / f).rglob("*.md")),
    ]
    if "node_modules" not in page.parts
)
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ARCHITECTURE = ROOT / "docs" / "dev" / "architecture.md"


def links_of(page):
    return [
        link
        for link in LINK.findall(FENCED.sub("", page.read_text()))
        if "://" not in link and not link.startswith("mailto:")
    ]


def anchors_of(page):
    """GitHub's anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_within_the_project_lead_somewhere(page):
    broken = []
    for link in links_of(page):
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            broken.append(link)

    assert broken == []


def test_the_pages_made_from_the_code_are_fresh():
    """Stale: run python docs/dev/reference.py."""
    # In a process of its own: help that another test has shown or patched is no part of the pages.
    script = str(ROOT / "docs" / "dev" / "reference.py")
    code = f"import runpy; made = runpy.run_path({script!r})['pages'](); print([p.name for p, t in made.items() if p.read_text() != t])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.strip() == "[]"


def test_files_that_the_architecture_names_exist():
    text = ARCHITECTURE.read_text()
    named = {
        each.removeprefix("profkit/") for each in re.findall(r"`([a-z_./]+(?:\.py|\.csv|\.j2|/))`", text)
    }

    # A bare name stands in the room that the sentence before names.
    missing = [
        each for each in named if not (ROOT / "profkit" / each).exists() and not (ROOT / each).exists()
    ]
    missing = [each for each in missing if not list((ROOT / "profkit").rglob(each))]
    assert missing == []


def test_the_architecture_shows_every_room():
    picture = ARCHITECTURE.read_text().partition("## ")[0]
    rooms = {path.parent.name for path in (ROOT / "profkit").glob("*/__init__.py")}

    assert [room for room in sorted(rooms) if f"{room}/" not in picture] == []


def test_every_page_of_a_shelf_can_be_reached_from_the_readme():
    found, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        found.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links_of(page)]
        todo += [
            target for target in targets if target.suffix == ".md" and target.exists() and target not in found
        ]

    assert [p.name for p in (ROOT / "docs").rglob("*.md") if p.resolve() not in found] == []


QUOTED = [
    pytest.param(command, answer, id=f"{page.name}: {command}")
    for page in PAGES
    for block in FENCED.findall(page.read_text())
    for command, answer in re.findall(r"^\$ (profkit .*)\n((?![$`]).+)$", block, re.MULTILINE)
    if any((ROOT / word).is_file() for word in command.split())
]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "answer"), QUOTED)
def test_what_a_page_quotes_of_a_bundled_recording_is_what_profkit_says(command, answer, tmp_path):
    words = [str(ROOT / word) if (ROOT / word).is_file() else word for word in command.split()[1:]]
    told = subprocess.run(
        [sys.executable, "-m", "profkit", *words],
        cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).stdout  # fmt: skip
    whole = " ".join(told.split())
    for part in answer.split("..."):
        assert " ".join(part.split()) in whole


def test_pages_quote_bundled_recordings():
    assert len(QUOTED) > 4


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Recordings under the names that the pages use."""
    folder = tmp_path_factory.mktemp("recordings")
    packed = (ROOT / "tests/data/nsys/sync_item.sqlite.gz").read_bytes()
    (folder / "report.sqlite").write_bytes(gzip.decompress(packed))
    for run in ("today", "before", "after"):
        (folder / "runs" / run).mkdir(parents=True)
        shutil.copy(ROOT / "tests/data/kineto/sync_item.json.gz", folder / "runs" / run / "trace.json.gz")
    return folder


READ = [
    pytest.param(code, id=f"{page.name}: {code.splitlines()[0].strip()}")
    for page in (ROOT / "README.md", ROOT / "docs" / "notebooks.md")
    for code in re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
    if re.match(r" *(?:report|profkit\.compare)\b", code)
]


@pytest.mark.parametrize("code", READ)
def test_code_that_reads_recordings_runs_as_it_stands(code, recordings, monkeypatch):
    monkeypatch.chdir(recordings)
    exec(textwrap.dedent(code), {"profkit": profkit, "report": profkit.analyze("runs/today")})


def test_code_that_reads_recordings_is_found():
    assert len(READ) >= 4
