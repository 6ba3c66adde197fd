"""What a report says of hardware counters: alone, beside their timeline, beside another program's, and many files."""

import csv
import gzip
import shutil

import pytest
from click.testing import CliRunner

import profkit
from profkit.cli import main
from profkit.readers import read
from profkit.report.assembly import summarise
from profkit.report.many_files import summarise_many
from profkit.report.views import Options
from tests.shared import DATA, SHARED, needs_shared

MIXED, MIXED_TRACE = DATA / "ncu" / "mixed.csv.gz", DATA / "ncu" / "mixed.json.gz"
CONVNET, CONVNET_TRACE = DATA / "ncu" / "convnet.csv.gz", DATA / "ncu" / "convnet.json.gz"
BESIDE = (
    [str(MIXED_TRACE), str(MIXED)],
    [str(DATA / "kineto" / "gpt_fp32.json.gz"), str(DATA / "nsys" / "gpt_fp32.sqlite.gz")],
)


def findings(report):
    return {row["code"]: row for row in report.as_dict()["health"]["findings"]}


def verdict(report):
    return report.as_dict()["verdict"]


def test_counters_alone_give_a_kernel_table_and_no_verdict():
    report = profkit.analyze(MIXED)

    assert set(report.kernels.basis) == {"measured"}
    assert set(report.kernels.bound) == {"compute", "memory", "overhead"}
    assert verdict(report)["bound"] == "unknown"
    assert "profkit analyze TRACE COUNTERS" in verdict(report)["remedy"]
    assert set(findings(report)) == {"counters-only"}
    assert "167 kernels" in findings(report)["counters-only"]["message"]
    assert report.as_dict()["health"]["kernels_without_launch"] == 0
    assert not len(report.advice)
    assert "No advice" not in str(report)


def test_counters_beside_their_timeline_say_how_much_of_it_they_cover():
    alone, report = profkit.analyze(CONVNET_TRACE), profkit.analyze([CONVNET_TRACE, CONVNET])

    said = findings(report)["counters-matched"]
    counted = len(read(CONVNET).counters)
    assert said["severity"] == "info"
    assert said["count"] >= 0.99 * counted
    assert f"of the {counted} kernels in convnet.csv.gz" in said["message"]
    assert verdict(report)["bound"] == verdict(alone)["bound"]


def test_counters_of_another_program_are_not_used_and_that_is_said():
    alone, report = profkit.analyze(MIXED_TRACE), profkit.analyze([MIXED_TRACE, CONVNET])

    assert findings(report)["counters-unlike"]["severity"] == "warning"
    assert "convnet.csv.gz" in findings(report)["counters-unlike"]["message"]
    assert report.kernels.dram_bytes.equals(alone.kernels.dram_bytes)


def test_of_several_files_of_counters_each_adds_what_it_has(tmp_path):
    lines = mixed_lines()
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    header = next(at for at, line in enumerate(lines) if line.startswith('"ID"'))
    half = header + (len(lines) - header) // 2
    first.write_text("".join(lines[:half]))
    second.write_text("".join(lines[: header + 2] + lines[half:]))

    together = profkit.analyze([MIXED_TRACE, MIXED])
    report = profkit.analyze([MIXED_TRACE, first, second])

    assert [row["code"] for row in report.as_dict()["health"]["findings"]].count("counters-matched") == 2
    assert report.kernels.dram_bytes.sum() == pytest.approx(together.kernels.dram_bytes.sum(), rel=0.01)


def mixed_lines():
    return gzip.decompress(MIXED.read_bytes()).decode().splitlines(keepends=True)


@pytest.mark.parametrize("files", BESIDE, ids=["counters", "operators"])
def test_among_many_files_a_timeline_has_what_others_give_it(files):
    together, apart = summarise([read(path) for path in files], Options()), summarise_many(files, Options())

    for table in ("inputs", "kernels", "totals", "verdict", "phases", "operators", "advice", "method"):
        assert getattr(apart, table) == getattr(together, table), table
    assert {f.code: f.count for f in apart.health.findings} == {
        f.code: f.count for f in together.health.findings
    }


def test_verify_says_that_counters_have_no_second_reader():
    alone = CliRunner().invoke(main, ["analyze", str(MIXED), "--verify", "--format", "text", "-o", "-"])
    beside = CliRunner().invoke(
        main, ["analyze", str(MIXED_TRACE), str(MIXED), "--verify", "--format", "text", "-o", "-"]
    )

    assert alone.exit_code == 1
    assert (
        "Not verified: mixed.csv.gz: there is no second reader for a table of Nsight Compute" in alone.stderr
    )
    assert beside.exit_code == 0
    assert "figures equal" in beside.stderr


@pytest.mark.parametrize("program", ["big_gemm_bf16", "convnet_fp16_channels_last", "elementwise_chain"])
def test_tables_of_another_run_of_a_recorded_program_match_its_trace(tmp_path, program):
    """Derived tables of our own programs, written as ncu writes its raw page, beside the traces of the same programs."""
    with (DATA / "ncu" / f"{program}.csv").open() as file:
        rows = list(csv.DictReader(file))
    raw = tmp_path / "counters.csv"
    with raw.open("w") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["ID", "Process ID", "Kernel Name", "Grid Size", "Block Size", *RAW_METRICS])
        for at, row in enumerate(rows):
            writer.writerow(
                [at, 1, row["kernel"], row["grid"], row["block"], *map(row.get, RAW_METRICS.values())]
            )

    report = profkit.analyze([DATA / "kineto" / f"{program}.json.gz", raw])
    measured = report.kernels[report.kernels.basis == "measured"]

    assert findings(report)["counters-matched"]["count"] >= 0.9 * len(rows)
    counted = sum(int(row["dram_bytes"]) for row in rows)
    assert measured.dram_bytes.sum() / len(report.steps[report.steps.kept]) == pytest.approx(counted, rel=0.1)


RAW_METRICS = {
    "gpu__time_duration.sum": "duration_ns",
    "dram__bytes.sum": "dram_bytes",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_throughput_pct",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "dram_throughput_pct",
}


@needs_shared
def test_a_raw_export_that_was_cut_short_covers_the_first_part_of_each_step():
    folder = SHARED / "recordings" / "ncu_raw"
    report = profkit.analyze([folder / "llama2.json.gz", folder / "llama2.csv"])
    said = findings(report)["counters-matched"]

    assert said["count"] == 293
    assert "82 % of its kernel time" in said["message"]


def test_a_saved_report_of_counters_is_shown_again(tmp_path):
    saved = tmp_path / "report.json"
    profkit.analyze(MIXED).save(saved)

    shown = CliRunner().invoke(main, ["show", str(saved)])

    assert shown.exit_code == 0, shown.output
    assert "mixed.csv.gz (Nsight Compute)" in shown.output


def test_counters_beside_one_side_are_no_other_recorder(tmp_path):
    shutil.copy(MIXED_TRACE, tmp_path / "mixed.json.gz")
    shutil.copy(MIXED, tmp_path / "mixed.ncu.csv.gz")

    compared = profkit.compare(MIXED_TRACE, tmp_path)

    assert compared.verdict == "no change"
    assert "format" not in {row["code"] for row in compared.as_dict()["warnings"]}
