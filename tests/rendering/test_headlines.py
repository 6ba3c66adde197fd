"""The first screen of every file in reach: a headline that is read at a glance, and what to do."""

import re
from functools import cache

import pytest

import profkit
from profkit.rendering.digest import scale_of
from profkit.rendering.page_summary import verdict_section
from tests.shared import DATA, SHARED

MOST_WORDS = 19
SUFFIXES = (".json", ".json.gz", ".sqlite", ".sqlite.gz", ".pickle", ".pickle.gz", ".pkl", ".csv", ".csv.gz")
PLACES = (DATA, *(SHARED / name for name in ("recordings", "cases", "cases2", "corpus")))
FILES = [
    file
    for place in PLACES
    for file in sorted(place.rglob("*"))
    if file.name.endswith(SUFFIXES) and not file.name.endswith(".expect.json")
]
FOLDERS = sorted(
    {file.parent for file in FILES if (file.parent / "run.json").exists() or file.name.startswith("rank")}
)


@cache
def first_screen(source):
    """The headline, whether something is said of what to do, and the report; None of a file that is refused."""
    try:
        report = profkit.analyze(source).document
    except profkit.ProfkitError:
        return None
    section = verdict_section(report, scale_of(report))
    headline = f"{section.kind}: {section.rest}" if section.kind else section.rest
    told = section.action or section.record or report.advice
    return headline, bool(told), report


def words(text):
    return len(re.findall(r"[^\W_][\w.:’'-]*", text))


@pytest.mark.slow
@pytest.mark.parametrize("source", [*FILES, *FOLDERS], ids=lambda path: "/".join(path.parts[-2:]))
def test_a_headline_has_under_20_words_and_something_is_to_be_done(source):
    screen = first_screen(source)
    if screen is None:
        return
    headline, told, report = screen
    assert words(headline) <= MOST_WORDS, headline
    assert told or report.devices, "nothing says what to do"


@pytest.mark.parametrize(
    ("name", "headline", "action"),
    [
        ("run_gpt/memory_oom.pickle", "Memory peaked at 2.75 GiB, and an allocation failed.", "Raise the process"),
        ("cases/54_mem_no_history.pickle", "The memory peak is unknown", "Record a history of allocations"),
        ("snapshot/cases/graph_pools.pickle.gz", "Memory peaked at 179 MiB.", "Record stacks too"),
        ("snapshot/leak.pickle.gz", "Memory peaked at 328 MiB, and it grows from step to step.", "Find what keeps"),
        ("snapshot/sync_item.pickle.gz", "Memory peaked at 528 MiB.", "To lower the peak, begin with workloads.py:61"),
        ("run_gpt/memory.pickle.gz", "Memory peaked at 101 MiB.", "Record from the start"),
        ("ranks/gloo_pipeline_rank0.json.gz", "ms on the CPU alone", "Look at the other ranks"),
        ("ranks/gloo_ddp_rank0.json.gz", "A step takes 6.04 ms on the CPU alone", "Look at "),
    ],
)  # fmt: skip
def test_pages_without_advice_say_what_to_do(name, headline, action):
    report = profkit.analyze(DATA / name)
    page = report.render("html").replace("\u00a0", " ").replace("&#39;", "'")
    assert headline in re.sub(r"</?(?:bdi|span)[^>]*>", "", page)
    assert f"<span>Do first</span> <bdi>{action}" in page
    assert action in " ".join(report.render("text").split())


def test_counters_of_single_kernels_tell_no_busy_time_and_no_time_of_the_host():
    report = profkit.analyze(DATA / "ncu/mixed.csv.gz").document
    numbers = [meaning for _, meaning in verdict_section(report, scale_of(report)).numbers]
    assert numbers == ["in kernels, each run by itself", "kernels"]
