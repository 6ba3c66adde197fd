"""The same recording twice is one, and a run's description counts only for its own files."""

import json
import shutil

import profkit
from tests.shared import DATA

TRACE = DATA / "nsys/tiny_mlp.sqlite.gz"


def test_a_file_given_twice_or_copied_is_read_once_and_told(tmp_path):
    copy = tmp_path / "copy.sqlite.gz"
    shutil.copyfile(TRACE, copy)
    once = profkit.analyze(TRACE).document
    for paths in ([TRACE, TRACE], [TRACE, copy]):
        twice = profkit.analyze(paths).document
        assert twice.totals.kernel_count == once.totals.kernel_count
        assert len(twice.devices) == 1
        assert "straggler" not in json.loads(profkit.analyze(paths).render("json"))["verdict"]
        assert "file-repeated" in {finding.code for finding in twice.health.findings}


def test_a_run_counts_only_for_the_files_that_it_lists(tmp_path):
    shutil.copyfile(TRACE, tmp_path / "mine.sqlite.gz")
    for name, counts in (("other.sqlite", False), ("mine.nsys-rep", True)):
        run = {"schema": "profkit.run/1", "plain_step_median_ns": 13_000_000, "files": [name]}
        (tmp_path / "run.json").write_text(json.dumps(run))
        result = profkit.analyze(tmp_path / "mine.sqlite.gz").document
        assert (result.health.profiler_overhead_ns is not None) == counts
