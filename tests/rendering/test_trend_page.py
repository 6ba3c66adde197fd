import re

import pytest

from profkit.comparison import Point, find_changes
from profkit.rendering.trend import render_trend_html

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e"


def points(values):
    return [
        Point(run=at, saved_at="2026-01-02T03:04:05.678+00:00", value=value)
        for at, value in enumerate(values, 1)
    ]


def page(values, label="step_ms"):
    series = points(values)
    return render_trend_html(series, find_changes(values), label)


def test_a_page_of_sixty_runs_is_small_and_marks_the_change():
    text = page([40.0 + (at > 30) * 5 + at % 7 * 0.1 for at in range(60)])
    assert len(text) < 25_000
    assert text.count("<circle") == 60
    assert text.count('class="change"') == 1
    assert "step_ms changed with run 32" in text


@pytest.mark.parametrize("values", [[], [3.0], [0.0, 0.0], [1.0, 2.0, 3.0]])
def test_any_number_of_runs_has_a_page(values):
    text = page(values)
    assert text.count("<circle") == len(values)
    assert "nan" not in text.lower()


def test_the_page_has_no_script_loads_nothing_and_shows_names_as_text():
    text = page([1.0, 2.0], HOSTILE)
    assert "<script" not in text
    assert "<img" not in text
    assert "\u202e" not in text
    assert not re.search(r"(?:src|href)\s*=\s*[\"']", text)


def test_only_rules_of_classes_on_the_page_are_in_its_style():
    style = re.search(r"<style>(.*?)</style>", page([1.0, 2.0]), re.DOTALL)[1]
    assert ".data" in style
    assert ".findings" not in style
    assert style.count("{") == style.count("}")
    defined = set(re.findall(r"(--[\w-]+):", style))
    assert set(re.findall(r"var\((--[\w-]+)\)", style)) <= defined | {"--tone"}


def test_the_latest_change_is_the_headline():
    text = page([50.0, 50.1, 49.9, 50.0, 40.0, 40.1, 39.9, 40.0, 30.0, 30.1, 29.9, 30.0])
    heading = text.partition("<h1")[2].partition("</h1>")[0]
    assert "changed with run 9: 40 → 30 (−25 %)" in heading
    assert "changed with run 5: 50" in text
