import pytest

import profkit
from profkit.model.rows import replace
from tests.comparison.recordings import compared, of_steps, recorded
from tests.rendering.sample_reports import SAMPLES
from tests.shared import DATA

PAIRS = [
    ("gpt_bf16", "gpt_bf16_compile"), ("gpt_fp32", "gpt_bf16"), ("tiny_mlp", "sync_item"), ("ddp", "gpt_bf16"),
    ("graphnode_tiny_mlp", "tiny_mlp"), ("dataloader_stall", "tiny_mlp"),
]  # fmt: skip


def part(comparison, name, kind="kernels"):
    return next(row for row in comparison.parts if (row.name, row.kind) == (name, kind))


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_parts_and_phases_add_up_to_the_step(before, after):
    found = compared([recorded(before)], [recorded(after)])
    for table in (found.parts, found.phases):
        for key in ("before_ns", "after_ns", "delta_ns"):
            assert sum(getattr(row, key) for row in table) == getattr(found.step, key)
    assert found.step.after_ns - found.step.before_ns == found.step.delta_ns


@pytest.mark.parametrize("folder", ["nsys", "kineto"])
def test_compiling_is_explained_by_fewer_cast_norm_and_pointwise_kernels_and_launches(folder):
    found = compared([recorded("gpt_bf16", folder)], [recorded("gpt_bf16_compile", folder)])
    assert found.verdict == "faster"
    assert {row.name for row in found.parts[:4]} == {"copy", "norm", "elementwise", "host"}
    for name, least_ms in (("copy", 4.5), ("norm", 1.4), ("elementwise", 1.1)):
        row = part(found, name)
        assert row.delta_ns < -least_ms * 1e6
        assert row.count_after < row.count_before
    assert part(found, "host", "idle").delta_ns < -3e6
    assert (found.kernel_count.before, found.kernel_count.after) == (759, 650)
    assert abs(part(found, "gemm").delta_ns) < 5e5


@pytest.mark.parametrize("folder", ["nsys", "kineto"])
def test_another_batch_size_is_no_speedup(folder):
    found = compared([recorded("gpt_fp32", folder)], [recorded("gpt_bf16", folder)])
    assert found.verdict == "not comparable"
    assert found.warnings[0].effect == "forbids"
    assert "batch size" in found.warnings[0].message
    assert found.step.work_ratio == pytest.approx(4, rel=0.02)  # batches of 8 and 32
    assert found.sentence.startswith("Not comparable: Another batch size")


def test_the_same_batch_compiled_is_the_same_work():
    assert compared([recorded("gpt_bf16")], [recorded("gpt_bf16_compile")]).step.work_ratio == 1


def with_grids(result, factor, families):
    """The report of a step whose kernels of some families work on more rows."""

    def grown(row):
        x, *others = row.grid
        return replace(row, grid=(max(round(x * factor), 1), *others)) if row.family in families else row

    return replace(result, kernels=[grown(row) for row in result.kernels])


@pytest.mark.parametrize("factor", [0.5, 1.125, 3])
def test_any_other_batch_size_is_seen_from_the_launches(factor):
    rowwise = {"norm", "softmax", "elementwise", "loss", "index", "copy"}
    result = recorded("gpt_bf16")
    found = compared([result], [with_grids(result, factor, rowwise)])
    assert found.verdict == "not comparable"
    assert found.step.work_ratio == pytest.approx(factor, rel=0.02)


def test_one_family_that_a_version_launches_another_way_is_no_other_batch():
    result = recorded("gpt_bf16")
    assert compared([result], [with_grids(result, 0.5, {"elementwise"})]).step.work_ratio == 1


def test_a_report_compared_with_itself_has_no_difference():
    found = compared([recorded("gpt_bf16")], [recorded("gpt_bf16")])
    assert found.verdict == "no change"
    assert not found.warnings
    assert not any(row.delta_ns for row in (*found.parts, *found.phases, *found.kernels))


def test_swapping_the_sides_swaps_the_verdict():
    forth = compared([recorded("gpt_bf16")], [recorded("gpt_bf16_compile")])
    back = compared([recorded("gpt_bf16_compile")], [recorded("gpt_bf16")])
    assert (forth.verdict, back.verdict) == ("faster", "slower")
    assert forth.step.noise_ns == back.step.noise_ns
    assert {r.name: r.delta_ns for r in forth.parts} == {r.name: -r.delta_ns for r in back.parts}


def test_another_card_forbids_a_conclusion():
    result = recorded("gpt_bf16")
    other = replace(result, devices=[replace(device, name="NVIDIA L4") for device in result.devices])
    found = compared([result], [other])
    assert found.verdict == "not comparable"
    assert "NVIDIA L4" in found.step.reason


def test_two_recorders_compare_by_busy_time_only():
    same = compared([recorded("gpt_bf16")], [recorded("gpt_bf16", "kineto")])
    assert same.verdict == "not comparable"  # 40 ms and 60 ms, but 34.2 and 34.4 of work
    assert same.warnings[0].code == "format"
    found = compared([recorded("gpt_fp32")], [recorded("gpt_fp32", "kineto")])
    assert found.verdict == "no change"  # the device never waits for the host, so nothing hides it


def test_a_recording_without_steps_is_not_compared_with_one_that_has_them():
    result = recorded("gpt_bf16")
    found = compared([result], [replace(result, window=replace(result.window, steps=[]))])
    assert found.verdict == "not comparable"


def test_a_change_of_names_is_matched_by_what_the_kernel_does():
    result = recorded("gpt_bf16", "kineto")
    renamed = replace(result, kernels=[replace(row, name=row.name + "_v2") for row in result.kernels])
    found = compared([result], [renamed])
    assert all(row.name and row.name_after for row in found.kernels)
    assert not any(row.delta_ns for row in found.kernels)
    assert {row.matched_by for row in found.kernels} == {"short name"}


def test_a_compiled_kernel_is_matched_by_operator_and_shape():
    result = recorded("gpt_bf16", "kineto")
    other = [
        replace(row, name=f"new_{at}", short_name=f"new {at}") if row.family == "gemm" else row
        for at, row in enumerate(result.kernels)
    ]
    found = compared([result], [replace(result, kernels=other)])
    products = [row for row in found.kernels if row.family == "gemm"]
    assert sum(row.before_ns for row in products if row.name_after is None) == 0
    assert {row.matched_by for row in products if row.before_ns} <= {"operator and shape", "operator"}


def test_every_kernel_is_told_once():
    before, after = recorded("gpt_bf16"), recorded("gpt_bf16_compile")
    found = compared([before], [after])
    for side, key in ((before, "count_before"), (after, "count_after")):
        steps = sum(step.kept for step in side.window.steps)
        assert sum(getattr(row, key) for row in found.kernels) == pytest.approx(
            sum(r.count for r in side.kernels) / steps, abs=0.2
        )


def test_reports_that_were_saved_without_parts_still_add_up():
    def old(result):
        return replace(result, window=replace(result.window, parts=[]))

    for before, after in (
        (old(recorded("gpt_bf16")), recorded("gpt_bf16_compile")),
        (old(recorded("tiny_mlp")),) * 2,
    ):
        found = compared([before], [after])
        assert sum(row.delta_ns for row in found.parts) == found.step.delta_ns
        assert sum(row.before_ns for row in found.parts) == found.step.before_ns
        assert {row.kind for row in found.parts} == {"share"}
        assert all(row.before_ns >= 0 for row in found.parts)
        assert found.phases == []


def test_memory_is_compared_by_owner_and_phase():
    paths = [DATA / "snapshot" / f"{name}.pickle.gz" for name in ("sync_item", "leak")]
    before, after = (profkit.analyze(path).document for path in paths)
    found = compared([before], [after])
    peaks = found.memory.peak_allocated_bytes
    assert peaks.change == after.memory.peak_allocated_bytes - before.memory.peak_allocated_bytes
    assert sum(row.change for row in found.memory.categories) != 0
    assert found.verdict == "not comparable"  # a snapshot has no times
    assert found.sentence.startswith("No times to compare, only memory: the peak is ")
    assert not found.warnings


@pytest.mark.parametrize("before", SAMPLES)
def test_any_two_reports_can_be_compared(before):
    for after in SAMPLES.values():
        found = compared([SAMPLES[before]()], [after()])
        assert sum(row.delta_ns for row in found.parts) == found.step.delta_ns or not found.parts


def test_no_change_says_where_both_sides_run_the_same_kernels():
    same = compared([recorded("gpt_fp32")], [recorded("gpt_fp32")])
    assert "Both sides run the same kernels, equally often" in same.sentence
    result = recorded("gpt_fp32")
    more = replace(result, kernels=[replace(result.kernels[0], count=99), *result.kernels[1:]])
    assert "same kernels" not in compared([result], [more]).sentence


def test_no_change_says_what_idle_time_hides():
    result = recorded("gpt_bf16", "kineto")
    before, after = (
        of_steps(result, [list(step)] * 10) for step in ((30_000_000, 20_000_000), (33_000_000, 17_000_000))
    )
    found = compared([before], [after])
    assert found.verdict == "no change"
    assert "The device is busy 3.00 ms longer, but idle time hides it." in found.sentence


def test_no_change_says_where_steps_spread_too_widely_to_tell():
    steps = [[30_000_000, ms * 1_000_000] for ms in (10, 30, 14, 26, 20, 12, 28, 22, 18, 16)]
    side = of_steps(recorded("gpt_bf16", "kineto"), steps)
    assert "record each side several times" in compared([side], [side]).sentence


def test_kernels_of_other_names_and_operators_match_by_launches_per_step_whatever_the_number_of_steps():
    result = recorded("gpt_fp32")
    kernel = replace(max(result.kernels, key=lambda row: row.total_ns), operators={})
    steps = result.window.steps
    first, *others = [step for step in steps if step.kept]

    def side(name, kept):
        count = 4 * len(kept)
        row = replace(kernel, name=name, short_name=name, count=count)
        return replace(result, kernels=[row], window=replace(result.window, steps=kept))

    before, after = side("old", [first, *others]), side("new", [first])
    found = compared([before], [after]).kernels
    assert [(row.name, row.name_after, row.matched_by) for row in found] == [("old", "new", "shape")]


def test_idle_time_explains_nothing_where_the_recorders_cost_the_host_other_amounts():
    found = compared([recorded("gpt_bf16", "kineto")], [recorded("gpt_bf16_compile", "nsys")])
    assert found.verdict == "faster"
    assert "most of it: casts and copies" in found.sentence
    assert "idle" not in found.sentence
    assert found.parts[0].kind == "idle"  # the parts still add up


@pytest.mark.parametrize("name", ["cases/12_metadata_only.json", "cases/50_mem_baseline.pickle"])
def test_a_recording_without_steps_is_left_out_of_the_times(name):
    step, empty = recorded("gpt_fp32"), profkit.analyze(DATA / name).document
    alone, more = compared([step], [step]), compared([step, empty], [step])
    assert more.step.before_ns == alone.step.before_ns
    assert more.verdict == "no change"
    assert [row.code for row in more.warnings].count("no-times") == 1


def test_parts_add_up_where_only_one_side_has_a_device():
    host = profkit.analyze(DATA / "ranks" / "gloo_ddp_rank0.json.gz").document
    found = compared([host], [recorded("gpt_fp32")])
    assert sum(row.delta_ns for row in found.parts) == found.step.delta_ns
