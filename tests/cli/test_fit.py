"""``profkit fit`` as a program calls it."""

import json
import re

import pytest
from click.testing import CliRunner

from profkit.cli import main
from tests.shared import DATA

RUN = str(DATA / "run_gpt")


def called(*arguments):
    return CliRunner().invoke(main, ["fit", *arguments])


def test_json_has_the_promised_names(tmp_path):
    found = json.loads(called(RUN, "--batch", "2", "--format", "json", "-o", "-").stdout)
    assert set(found["before"]) == {"peak_bytes", "reserved_bytes", "step_ns"}
    assert found["changes"] == ["batch"]
    assert found["settings"] == {"batch": 2}
    for name in ("peak_bytes", "reserved_bytes", "step_ns"):
        interval = found["after"][name]
        assert interval["low"] <= interval["likely"] <= interval["high"]
    assert found["memory_bytes"] > 0
    assert found["fits"] is True
    written = tmp_path / "fit.json"
    assert called(RUN, "--batch", "2", "-o", str(written)).exit_code == 0
    assert json.loads(written.read_text()) == found


def test_text_says_whether_it_fits():
    shown = called(RUN, "--memory", "1MB")
    assert shown.exit_code == 0
    assert "It does not fit into 977 KiB." in shown.stdout
    assert "It fits into 9.31 GiB." in called(RUN, "--memory", "10GB").stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ["--batch", "0"],
        ["--batch", "many"],
        ["--memory", "24"],
        ["--optimizer", "x"],
        ["--shard", "zero1"],
        ["--ranks", "2"],
        [],
    ],
)
def test_wrong_usage_is_exit_code_2(wrong):
    assert called(*([RUN, *wrong] if wrong else [])).exit_code == 2


def test_a_recording_without_a_history_is_exit_code_1():
    assert called(str(DATA / "run_gpt" / "trace.json.gz")).exit_code == 1


def test_a_report_prices_each_change_alone(tmp_path):
    report = tmp_path / "r.json"
    done = CliRunner().invoke(main, ["analyze", RUN, "-q", "-o", str(report)])
    assert done.exit_code == 0, done.output
    rows = {row["change"]: row for row in json.loads(report.read_text())["fit"]}
    assert {"bf16", "fused-attention", "recompute", "batch"} <= set(rows)
    for name, flags in {"bf16": ["--bf16"], "recompute": ["--recompute", "all"]}.items():
        alone = json.loads(called(RUN, *flags, "--json").stdout)
        assert rows[name]["peak_bytes"] == alone["after"]["peak_bytes"]
        assert rows[name]["fits"] == alone["fits"]
    page = tmp_path / "r.html"
    assert CliRunner().invoke(main, ["analyze", RUN, "-q", "-o", str(page)]).exit_code == 0
    shown = CliRunner().invoke(main, ["analyze", RUN, "--format", "text", "-o", "-"]).stdout
    assert "all layers recomputed" in shown
    shown = page.read_text()
    assert "The peak after each change alone" in shown
    assert "This GPU<small>140 GiB</small>" in shown
    assert re.search(
        r"twice the batch.*?<td class=\"n\">[\d.]+ MiB<small>[\d.]+ MiB to [\d.]+ MiB</small>", shown
    )


def test_a_page_without_a_history_claims_no_peak_and_no_calls(tmp_path):
    page = tmp_path / "page.html"
    alone = str(DATA / "cases" / "54_mem_no_history.pickle")
    assert CliRunner().invoke(main, ["analyze", alone, "-o", str(page)]).exit_code == 0
    shown = page.read_text()
    assert "no history: only what was allocated at the end" in shown
    assert "Where the memory at the end was allocated" in shown
    assert "cudaMalloc; " not in shown


def test_text_says_what_is_not_known():
    alone = str(DATA / "run_gpt" / "memory.pickle.gz")
    shown = called(alone, "--sequence", "2").stdout
    assert "the square of the sequence" in shown
    assert "for an unknown purpose. If they are inputs, they change as well" in shown
    assert "pass it with --memory" in shown
    assert "its update of the weights" in called(RUN, "--offload-optimizer", "--keep-gradients").stdout
    assert "It fits with" in called(RUN, "--memory", "115MB").stdout


def test_a_recording_that_ends_out_of_memory_never_fits():
    recorded = str(DATA / "snapshot" / "cases" / "oom.pickle.gz")
    as_json = ("--format", "json", "-o", "-")
    found = json.loads(called(recorded, "--memory", "160GB", *as_json).stdout)
    asked = 8 * 2**30
    assert found["after"]["peak_bytes"]["likely"] == found["before"]["peak_bytes"] + asked
    assert found["fits"] is None
    assert found["cheapest"] is None
    assert {"code": "ran-out", "params": {"bytes": asked}} in found["notes"]
    assert "As far as the recording goes" in called(recorded, "--memory", "160GB").stdout
    assert json.loads(called(recorded, "--memory", "100GB", *as_json).stdout)["fits"] is False
    refused = called(recorded, "--memory", "160GB", "--batch", "max")
    assert refused.exit_code == 1
    assert "ends where memory ran out" in refused.stderr
