"""The study of memory: what its documents quote is what its rows say."""

import gzip
import re
import shutil
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "reports" / "memory"


STUDIES = {
    "public": "{count} changes of 17",
    "after_mends": "{count} changes of four other models",
    "sharded": "{count} changes of eight models",
}
"""Of each study the words of the guide."""


@pytest.fixture(params=STUDIES)
def study(request):
    return request.param


def scores(monkeypatch, capsys, study, *predictions):
    monkeypatch.syspath_prepend(str(FOLDER))
    public_score = pytest.importorskip("public_score")
    public_score.main(FOLDER / study, *predictions)
    return capsys.readouterr().out


def test_the_score_is_of_changed_steps_and_the_documents_quote_it(study, monkeypatch, capsys):
    printed = scores(monkeypatch, capsys, study)
    count, within_5, within_10 = re.search(
        r"^peak: (\d+) rows.*within 5% (\d+), within 10% (\d+)", printed, re.MULTILINE
    ).groups()
    changed = re.findall(r"^\| \w+ \| (?!base\b)[\w.+]+ \| [\d.]+ \| [+-]", printed, re.MULTILINE)
    assert int(count) == len(changed)
    guide = " ".join((ROOT / "docs" / "fit.md").read_text().split())
    told = guide.partition(STUDIES[study].format(count=count))[2].partition("In view")[0]
    assert re.search(rf"\b{within_5}\b.*\b{within_10}\b", told)


def test_the_table_in_the_report_is_what_the_rows_give(study, monkeypatch, capsys):
    report = (FOLDER / "README.md").read_text()
    printed = scores(monkeypatch, capsys, study)
    printed = printed.partition("\nlimits: 0 judged")[0].splitlines()
    missing = [
        line for line in printed if line and "no layers to recompute" not in line and line not in report
    ]
    assert len(printed) > 20
    assert missing == []


def test_what_is_said_of_the_mended_rows_is_what_they_give(study, monkeypatch, capsys):
    report = (FOLDER / "README.md").read_text()
    printed = scores(monkeypatch, capsys, study, "mended.jsonl").splitlines()
    summed = [line for line in printed if line.startswith(("peak:", "reserved:", "step_ns:", "recomputed "))]
    assert len(summed) >= 3
    assert all(line in report for line in summed)


def test_recordings_come_back_packed_and_can_be_read(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    public_study = pytest.importorskip("public_study")
    recorded = ROOT / "tests" / "data" / "run_gpt"
    shutil.copytree(recorded, tmp_path / "runs" / "gpt")
    public_study.pack(tmp_path)
    for archive in tmp_path.glob("runs_*.tar.xz"):
        with tarfile.open(archive) as packed:
            packed.extractall(tmp_path / "back", filter="data")
    back = tmp_path / "back" / "runs" / "gpt"
    assert {path.name for path in back.iterdir()} == {path.name for path in recorded.iterdir()}
    for path in back.glob("*.gz"):
        assert gzip.decompress(path.read_bytes()) == gzip.decompress((recorded / path.name).read_bytes())


def test_limits_are_measured_before_the_last_changes(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    public_study = pytest.importorskip("public_study")
    study = public_study.Study(tmp_path, until=0)
    for change in ("base", "bf16", "sgd", "infer"):
        public_study.append(
            tmp_path / "predictions.jsonl", {"model": "m", "change": change, "limit_bytes": None}
        )
        for limit in (1, 2, 3) if change in ("base", "bf16") else ():
            public_study.append(
                tmp_path / "predictions.jsonl", {"model": "m", "change": change, "limit_bytes": limit}
            )
    study.measure_all("m")
    order = [study.tasks.get()[2][2:4] for _ in range(study.tasks.qsize())]
    assert order == [
        ("bf16", "0"), ("base", "1"), ("base", "2"), ("base", "3"),
        ("sgd", "0"), ("bf16", "1"), ("bf16", "2"), ("bf16", "3"), ("infer", "0"), ("base", "0"),
    ]  # fmt: skip
