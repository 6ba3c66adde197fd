"""The study's predictions stay those of the traces that lie beside them."""

import hashlib
import json
from pathlib import Path

import pytest

from profkit.analysis.advice import RULES
from profkit.readers import read
from tests.analysis.advice.made_steps import advice_on

ROOT = Path(__file__).parents[3]
STUDY = ROOT / "reports" / "advice"
PREDICTIONS = json.loads((STUDY / "predictions.json").read_text())


@pytest.mark.parametrize("name", PREDICTIONS)
def test_the_prediction_names_the_trace_that_it_was_made_from(name):
    content = (STUDY / "data" / f"{name}.json.gz").read_bytes()

    assert PREDICTIONS[name]["trace_sha256"] == hashlib.sha256(content).hexdigest()


def test_a_well_tuned_step_is_promised_nothing():
    found = advice_on(read(STUDY / "data" / "tuned_gpt.json.gz"))

    assert [row for row in found.values() if row["speedup"] and row["speedup"]["likely"] > 1.03] == []


def test_every_rule_is_described():
    text = (ROOT / "docs" / "advice.md").read_text()

    assert [rule.id for rule in RULES if f"`{rule.id}`" not in text] == []
