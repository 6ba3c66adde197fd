"""`--verify`: every recording agrees with the brute force, and wrong totals that are planted are found."""

import json
from dataclasses import replace
from functools import cache

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

import profkit
from profkit.api import expand
from profkit.cli import main
from profkit.errors import ProfkitError
from profkit.rendering.schema import report_schema
from profkit.timeline.intervals import Intervals
from profkit.verification import Verification, verify, with_verification
from tests.fuzz.inputs import READERS, nth
from tests.fuzz.properties import _written
from tests.shared import DATA, SHARED, needs_shared

RECORDINGS = sorted(
    path
    for pattern in (
        "nsys/*.gz",
        "kineto/*.gz",
        "ranks/*.gz",
        "snapshot/*.gz",
        "snapshot/cases/*.gz",
        "run_gpt/*.gz",
    )
    for path in DATA.glob(pattern)
)
REFUSED = ("22b_", "90_", "90c_", "93c_", "96_", "98_")
CASES = sorted(
    path
    for path in (DATA / "cases").glob("*.*")
    if path.suffix not in (".txt", ".py") and not path.name.startswith(REFUSED)
)
LARGE = 100_000
"""Bytes of a compressed recording from which the brute force takes seconds."""
PUBLISHED = [
    *sorted((SHARED / "corpus").glob("*/*")),
    *sorted((SHARED / "cases2").glob("*.gz")),
]
OVERLAPPING = DATA / "cases/17_overlap_utilisation.json"
STEPPED = DATA / "nsys/gpt_bf16.sqlite.gz"
SNAPSHOT = DATA / "snapshot/leak.pickle.gz"


def run(*arguments):
    return CliRunner().invoke(main, ["analyze", *map(str, arguments)])


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@cache
def result_of(*paths):
    return profkit.analyze(list(paths)).document


def verified(*paths, **options) -> Verification:
    return verify(result_of(*paths), [str(path) for path in paths], **options)


# --- agreement


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] if path.stat().st_size > LARGE else [], id=path.name)
        for path in [*RECORDINGS, *CASES]
    ],
)
def test_a_recording_agrees_with_the_brute_force(path):
    found = verified(path)
    assert found.differing == []
    assert found.unread == []
    assert len(found.figures) >= 4


def test_what_is_compared():
    names = {name.partition("[")[0] for name, _, _ in verified(STEPPED).figures}
    assert names >= {
        "totals.kernel_count", "totals.kernel_sum_ns", "totals.kernel_union_ns", "totals.gpu_busy_ns",
        "totals.gpu_span_ns", "totals.copy_ns", "totals.devices", "totals.kernels", "kernels", "devices",
        "window.start_ns", "window.end_ns", "window.device_ns", "window.steps",
        "phases", "step.recorded_ns", "verdict.share", "verdict.shares.sync", "verdict.launch.host",
        "idle.total_ns", "idle.by_cause.host_work", "idle.by_cause.initialisation",
    }  # fmt: skip
    names = {name for name, _, _ in verified(SNAPSHOT).figures}
    assert names >= {
        f"memory.devices[0].{key}"
        for key in (
            "peak_allocated_bytes", "peak_reserved_bytes", "allocated_bytes", "active_bytes", "reserved_bytes",
            "actions.alloc", "actions.free_requested", "actions.free_completed", "actions.segment_alloc",
        )
    }  # fmt: skip


@pytest.mark.slow
@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name[:60])
def test_a_published_file_agrees_or_is_refused(path):
    try:
        found = verified(path)
    except profkit.ReadError:
        pytest.skip("is no recording")
    assert found.differing == []


@pytest.mark.parametrize("reader", READERS)
def test_damaged_inputs_agree_or_are_not_compared(reader, tmp_path):
    compared = 0
    for number in range(60):
        files = [str(file) for file in _written(nth(reader, 7, number), tmp_path)]
        try:
            result = profkit.analyze(files).document
        except ProfkitError:
            continue
        found = verify(result, files)
        assert found.differing == [], number
        compared += bool(found.figures)
    assert compared > 12


def test_several_inputs_agree_each_and_together():
    folder = DATA / "run_gpt"
    found = verify(profkit.analyze(folder).document, expand(folder))
    assert (found.differing, found.unread) == ([], [])
    assert any(name.startswith("memory.") for name, _, _ in found.figures)
    ranks = [DATA / "kineto/ddp_rank0.json.gz", DATA / "kineto/ddp_rank1.json.gz"]
    found = verified(*ranks)
    assert found.differing == []
    assert [f[0] for f in found.figures if f[0].endswith(".window_ns")] == [
        "devices[0].window_ns",
        "devices[1].window_ns",
    ]


def test_many_files_summed_one_by_one_agree():
    files = [
        DATA / "kineto/ddp_rank0.json.gz",
        DATA / "kineto/ddp_rank1.json.gz",
        DATA / "kineto/sync_item.json.gz",
    ]
    result = profkit.analyze(files, cluster="local").document
    assert verify(result, [str(file) for file in files]).differing == []


def test_remote_files_agree():
    fsspec = pytest.importorskip("fsspec")
    bucket = fsspec.filesystem("memory")
    for name in ("kineto/sync_item.json.gz", "nsys/sync_item.sqlite.gz"):
        bucket.pipe(f"/verified/{name.rpartition('/')[2]}", (DATA / name).read_bytes())
    result = profkit.analyze("memory://verified").document
    found = verify(result, expand("memory://verified"))
    assert (found.differing, found.unread) == ([], [])
    assert found.figures
    bucket.rm("/verified", recursive=True)


def test_a_file_that_was_left_out_is_not_looked_for(tmp_path):
    (tmp_path / "a_broken.json").write_text("{")
    good = tmp_path / "b.json"
    good.write_bytes(OVERLAPPING.read_bytes())
    done = run(tmp_path, "--verify", "-o", "r.json")
    assert done.exit_code == 0, done.output
    assert "50 of 50 figures equal" in done.stderr


@pytest.mark.parametrize("device", [0, 1])
def test_the_only_device_that_was_asked_for(device):
    path = DATA / "nsys/ddp.sqlite.gz"
    result = profkit.analyze(path, device=device).document
    assert verify(result, [str(path)], device=device).differing == []
    other = verify(result, [str(path)], device=1 - device)
    assert other.differing, "the other device's numbers are others"


def test_steps_of_another_name():
    path = DATA / "nsys/tiny_mlp.sqlite.gz"
    result = profkit.analyze(path, step="forward").document
    assert verify(result, [str(path)], step="forward").differing == []
    assert verify(result, [str(path)]).differing


# --- planted faults


def plant_a_sum_for_a_union(monkeypatch):
    """The classic: lengths added up, so that what overlaps counts twice."""
    monkeypatch.setattr("profkit.timeline.window_table.Intervals", _Summed)
    return OVERLAPPING, "totals.kernel_union_ns"


class _Summed:
    def __init__(self, total_ns):
        self.total_ns = total_ns

    @classmethod
    def of(cls, start, end):
        return cls(int((np.asarray(end) - np.asarray(start)).sum()))


def plant_a_lost_kernel(monkeypatch):
    """One row of a chunk is dropped while reading."""
    from profkit.readers.nsys import read_device_work as whole

    def without_the_first(*arguments):
        operations = whole(*arguments)
        return operations.take(np.arange(len(operations)) > 0)

    monkeypatch.setattr("profkit.readers.nsys.read_device_work", without_the_first)
    return STEPPED, "totals.kernel_count"


def plant_a_wrong_window(monkeypatch):
    """One step too many is left out as warm-up."""
    monkeypatch.setattr("profkit.report.views.steps_left_out", lambda *_: np.array([True, True]))
    return STEPPED, "window.start_ns"


def plant_a_nanosecond(monkeypatch):
    """A single kernel ends one nanosecond late."""
    from profkit.readers.kineto import Assembly

    whole = Assembly.operations

    def late(self):
        operations = whole(self)
        operations.end_ns[0] += 1
        return operations

    monkeypatch.setattr(Assembly, "operations", late)
    return DATA / "kineto/sync_item.json.gz", "totals.kernel_sum_ns"


def plant_unrounded_blocks(monkeypatch):
    """The peak counts what was asked for, not what was taken."""
    monkeypatch.setattr(
        "profkit.memory.block_sizes.AllocatorRules.rounded",
        lambda self, requests: requests.astype(np.int64),
    )
    return DATA / "snapshot/cases/gpt.pickle.gz", "memory.devices[0].peak_allocated_bytes"


def plant_names_exchanged(monkeypatch):
    """Two kernels change places in the table by name; every sum stays right."""
    from profkit.model.rows import replace
    from profkit.timeline import window_table

    whole = window_table.totals_row

    def exchanged(*arguments):
        row = whole(*arguments)
        first, second = row.kernels[:2]
        exchanged_names = [replace(first, name=second.name), replace(second, name=first.name)]
        return replace(row, kernels=[*exchanged_names, *row.kernels[2:]])

    monkeypatch.setattr("profkit.report.part.totals_row", exchanged)
    return STEPPED, "totals.kernels["


def plant_gaps_that_are_late_to_their_end(monkeypatch):
    """A gap whose launch returned in the middle of it is the host's as a whole."""
    monkeypatch.setattr("profkit.timeline.idle.late_until", lambda launches, gaps: gaps.end_ns.copy())
    return DATA / "nsys/tiny_mlp.sqlite.gz", "idle.by_cause.queue"


def plant_a_loader_that_nobody_sees(monkeypatch):
    """Fetching data counts as launching."""
    monkeypatch.setattr("profkit.timeline.host_activity.fetches_data", lambda name: False)
    return DATA / "nsys/dataloader_stall.sqlite.gz", "idle.by_cause.input"


def plant_waits_that_cost_nothing(monkeypatch):
    """What waits explain is called launching."""
    from profkit.timeline import idle

    spend = idle.spend_credit
    monkeypatch.setattr(idle, "spend_credit", lambda amount, *rest: spend(np.zeros_like(amount), *rest))
    return DATA / "kineto/sync_item.json.gz", "idle.by_cause.sync"


def plant_a_backward_pass_without_phase(monkeypatch):
    """What autograd's thread launches has no phase."""
    monkeypatch.setattr("profkit.timeline.phases._autograd_threads", lambda *_: frozenset())
    return DATA / "kineto/gpt_bf16.json.gz", "phases["


def plant_a_mean_for_a_median(monkeypatch):
    """The headline's step is another one."""
    monkeypatch.setattr("profkit.timeline.step_times.np.median", lambda values: np.max(values))
    return STEPPED, "step.recorded_ns"


def plant_a_headline_with_another_share(monkeypatch):
    """The second share is called the bound."""
    from profkit.report import verdict

    monkeypatch.setattr(verdict._Decision, "order", property(lambda self: list(self.chosen)[::-1]))
    return STEPPED, "verdict.share["


PLANTS = (
    plant_gaps_that_are_late_to_their_end,
    plant_a_loader_that_nobody_sees,
    plant_waits_that_cost_nothing,
    plant_a_backward_pass_without_phase,
    plant_a_mean_for_a_median,
    plant_a_headline_with_another_share,
    plant_a_sum_for_a_union,
    plant_a_lost_kernel,
    plant_a_wrong_window,
    plant_a_nanosecond,
    plant_unrounded_blocks,
    plant_names_exchanged,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_told_and_fails(plant, monkeypatch, tmp_path):
    path, figure = plant(monkeypatch)
    done = run(path, "--verify", "-o", "report.json")
    assert done.exit_code == 1
    assert f"  {figure}" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: --verify: ")
    report = json.loads((tmp_path / "report.json").read_bytes())
    jsonschema.validate(report, report_schema())
    first = report["health"]["findings"][0]
    assert (first["code"], first["severity"]) == ("verification-failed", "error")
    assert not report["health"]["ok"]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert run(path, "--verify", "-o", "report.json").exit_code == 0


# --- what is said


def test_equal_figures_are_one_line_and_a_finding(tmp_path):
    done = run(STEPPED, "--verify", "-o", "report.json")
    assert done.exit_code == 0
    told = [line for line in done.stderr.splitlines() if "brute force" in line]
    assert told == ["Verified by brute force: 319 of 319 figures equal"]
    report = json.loads((tmp_path / "report.json").read_bytes())
    jsonschema.validate(report, report_schema())
    (finding,) = [f for f in report["health"]["findings"] if f["code"] == "verified"]
    assert (finding["severity"], finding["count"]) == ("info", 319)
    plain = result_of(STEPPED)
    assert report["health"]["ok"] == plain.health.ok


def test_every_format_holds_the_finding():
    for format_ in ("text", "md", "html"):
        done = run(STEPPED, "--verify", "--format", format_, "-o", "-")
        assert "319 figures equal" in done.stdout, format_


def test_without_the_option_nothing_is_verified(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.verification.verify", None)
    done = run(OVERLAPPING, "-o", "report.json")
    assert done.exit_code == 0
    assert "verif" not in (tmp_path / "report.json").read_text() + done.stderr


def test_quiet_says_nothing_unless_it_fails(monkeypatch):
    assert "brute force" not in run(OVERLAPPING, "--verify", "-q").stderr
    path, figure = plant_a_sum_for_a_union(monkeypatch)
    assert figure in run(path, "--verify", "-q").stderr


def test_standard_input_cannot_be_read_twice():
    done = CliRunner().invoke(main, ["analyze", "-", "--verify"], input=OVERLAPPING.read_bytes())
    assert done.exit_code == 2
    assert "reads each file twice" in done.stderr


def test_what_plain_means_cannot_read_is_said_and_is_no_success(tmp_path):
    path = tmp_path / "quotes.json"
    path.write_bytes(OVERLAPPING.read_bytes().replace(b'"name": "ncclDev', b'"name": "ncc"lDev', 1))
    assert path.read_bytes() != OVERLAPPING.read_bytes()
    done = run(path, "--verify", "-o", "report.json")
    assert done.exit_code == 1
    assert "Not verified: quotes.json: " in done.stderr
    assert "nothing could be compared" in done.stderr
    codes = [f["code"] for f in json.loads((tmp_path / "report.json").read_bytes())["health"]["findings"]]
    assert "not-verified" in codes


def test_a_file_that_changed_meanwhile_differs(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(OVERLAPPING.read_bytes())
    result = profkit.analyze(path).document
    path.write_bytes((DATA / "cases/06_sub_us_kernels.json").read_bytes())
    found = verify(result, [str(path)])
    assert found.differing
    assert with_verification(result, found).health.findings[0].code == "verification-failed"


def test_the_longest_list_of_differences_is_cut():
    found = Verification([(f"figure {number}", number, 0) for number in range(1, 20)])
    assert len(found.lines()) == 7
    assert found.lines()[-1] == "  and 14 more"


def test_the_report_itself_is_left_as_it_was():
    result = result_of(OVERLAPPING)
    before = json.dumps(profkit.Report(result).as_dict())
    found = verified(OVERLAPPING)
    with_verification(result, found)
    with_verification(result, replace(found, figures=[("x", 1, 2)]))
    assert json.dumps(profkit.Report(result).as_dict()) == before


def test_the_planted_union_is_wrong_indeed():
    start, end = np.array([0, 5]), np.array([10, 15])
    assert (Intervals.of(start, end).total_ns, _Summed.of(start, end).total_ns) == (15, 20)
