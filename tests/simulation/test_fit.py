"""Predicted memory against what was measured, and the allocator that is played against another model of it."""

import json
import pickle
import runpy
from dataclasses import replace
from functools import cache
from time import process_time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import profkit
from profkit.errors import AnalysisError, ProfkitError
from profkit.memory.block_sizes import AllocatorRules
from profkit.memory.categories import (
    BACKWARD,
    GRADIENT,
    OPTIMIZER,
    OPTIMIZER_STATE,
    PARAMETER,
    TEMPORARY,
    UNKNOWN_USE,
    _from_before,
)
from profkit.memory.phase_memory import Stretches
from profkit.memory.replay import curve_of
from profkit.model.memory_history import Action
from profkit.readers import read
from profkit.rendering.fit import render_fit_text
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation.answer import first_step
from profkit.simulation.attention_memory import score_rows, sequence_times, shares_keys_in_fp32
from profkit.simulation.autocast_memory import under_autocast
from profkit.simulation.block_operators import BlockOperators, Call, block_operators
from profkit.simulation.caching_allocator import most_reserved
from profkit.simulation.cheapest_fit import _NO_FASTER, _sets, _with, cheapest_fit
from profkit.simulation.fit import fit_program, likely_ns, room_bytes, surely_fits, wanted_bytes
from profkit.simulation.fit_changes import FitChanges
from profkit.simulation.inference_memory import infer_only
from profkit.simulation.layer_times import layer_times
from profkit.simulation.loss_memory import find_loss, fuse_loss_memory
from profkit.simulation.memory_changes import keep_gradients, optimizer_kind
from profkit.simulation.memory_program import memory_program
from profkit.simulation.offload_time import offload_ns
from profkit.simulation.recompute_memory import (
    Segment,
    _Layers,
    backward_begin,
    find_segments,
    recompute_memory,
)
from profkit.simulation.shard_memory import _steps, is_sharded
from tests.memory.caching_allocator import MIB, CachingAllocator
from tests.shared import DATA, SHARED, needs_shared

MODELS = SHARED / "recordings" / "memory"
CHANGES = {
    "base": {},
    "batch": {},
    "bf16": {"bf16": True},
    "checkpoint": {"recompute": "all"},
    "sgd": {"optimizer": "sgd"},
    "fused": {"fused_optimizer": True},
    "sdpa": {"fused_attention": True},
}


def measured():
    path = MODELS / "peaks.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def asked(change):
    """The changes of a measured row by its name: ``bf16_batch_x2``."""
    name, _, factor = change.partition("batch_x")
    found = CHANGES[name.rstrip("_") or "batch"]
    return {**found, "batch": float(factor)} if factor else found


@cache
def recorded(model):
    """The blocks of a shared model, and the operators that made them."""
    program = memory_program(read(MODELS / model / "memory.pickle"))
    trace = read(MODELS / model / "trace.json.gz")
    return program, block_operators(program, trace)


@needs_shared
@pytest.mark.parametrize("row", measured(), ids=lambda row: f"{row['model']}-{row['change']}")
def test_measured_peaks_of_changed_steps_are_met(row):
    program, operators = recorded(row["model"])
    after = fit_program(program, FitChanges(**asked(row["change"])), operators).after
    assert after.peak_bytes.likely == pytest.approx(row["after_bytes"], rel=0.03)
    assert after.peak_bytes.low <= row["after_bytes"] <= after.peak_bytes.high
    assert after.reserved_bytes.low <= row["reserved_bytes"] <= after.reserved_bytes.high


@needs_shared
@pytest.mark.parametrize(("model", "layers"), [("gpt2", 12), ("whisper", 12), ("resnet50", 16)])
def test_layers_are_found_in_the_stacks(model, layers):
    segments = find_segments(recorded(model)[0])
    assert [s.step for s in segments].count(0) == layers
    rows = np.concatenate([segment.rows for segment in segments])
    assert len(rows) == len(np.unique(rows))


@needs_shared
@pytest.mark.parametrize("model", ["gpt2", "whisper"])
def test_steps_that_no_mark_tells_end_with_the_optimizers_stacks(model):
    program, _ = recorded(model)
    bare = replace(program, stretches=Stretches([], [], []))
    marked = [step.last for step in program.stretches.steps]
    assert len(marked) > 1
    # The annotated optimizer ends a few allocations before its step does.
    assert np.abs(bare.step_bounds[1 : len(marked)] - marked[:-1]).max() <= 8


@pytest.fixture(scope="module")
def long_history(tmp_path_factory):
    """A snapshot of 100,000 entries, whose first steps a trace has too."""
    folder = tmp_path_factory.mktemp("long")
    make = runpy.run_path(str(DATA.parents[1] / "reports" / "bench" / "make_snapshot.py"))["make"]
    entries = make(DATA / "run_gpt" / "memory.pickle.gz", folder / "memory.pickle", entries=100_000)
    assert entries > 100_000
    return folder / "memory.pickle"


def test_a_snapshot_of_100_000_entries_takes_under_3_s(long_history):
    began = process_time()
    profkit.fit(long_history, batch=2, recompute="all", keep_gradients=True, memory_bytes=10**9)
    assert process_time() - began < 3


def test_the_search_for_what_fits_takes_a_few_times_as_long_as_reading(long_history):
    """All 63 sets of changes are tried, and priced where they fit: 4 times as long, and 18 times when each was replayed."""
    began = process_time()
    read(long_history)
    reading = process_time() - began
    began = process_time()
    found = profkit.fit([long_history, DATA / "run_gpt" / "trace.json.gz"], memory_bytes=28 * 10**6)
    assert process_time() - began < 9 * reading
    assert found.fits is False
    assert found.cheapest is None


@needs_shared
def test_layers_are_chosen_by_phase_or_by_name():
    program, _ = recorded("whisper")
    everything = find_segments(program)
    assert len(find_segments(program, "forward")) == len(everything)
    assert not find_segments(program, "backward")
    assert len(find_segments(program, "modeling_whisper")) == len(everything)
    assert not find_segments(program, "no such module")


def called(*calls):
    """A step of forward calls ``(name, elements taken, bytes made)``, one block each."""
    made = [
        Call(name, (taken,), ((taken,),), False, number, number + 1, number + 1)
        for number, (name, taken, _) in enumerate(calls)
    ]
    rows = np.arange(len(calls))
    program = SimpleNamespace(requested=np.array([size for *_, size in calls]))
    return program, BlockOperators(made, rows, rows, [rows], rows[:0])


def test_a_layer_with_results_of_the_size_of_scores_makes_no_scores():
    attention = [
        ("aten::bmm", 8, 64),
        ("aten::div", 16, 64),
        ("aten::_softmax", 16, 64),
        ("aten::native_dropout", 16, 16),
    ]
    program, operators = called(
        ("aten::gelu", 16, 64),
        *attention,
        ("aten::bmm", 16, 32),
        ("aten::gelu", 16, 64),
        ("aten::_log_softmax", 16, 64),
    )
    assert score_rows(program, operators).tolist() == [False, True, True, True, True, False, False, False]


def test_a_step_under_autocast_is_told_from_one_in_fp32():
    products = [("aten::mm", 16, 64)] * 6
    assert not under_autocast(*called(*products, ("aten::_to_copy", 16, 64)))
    assert under_autocast(*called(*products, *[("aten::_to_copy", 16, 32)] * 6))
    if MODELS.exists():
        assert not under_autocast(*recorded("gpt2"))


def test_gradients_of_the_step_before_are_no_parameters():
    """Three old blocks of one size and one that the next backward replaces: parameter, two states, old gradient."""
    requested = np.full(5, 4096)
    allocated, freed = np.array([0, 0, 0, 0, 5]), np.array([3, 9, 9, 9, 8])
    use = np.array([UNKNOWN_USE] * 4 + [GRADIENT])
    assert _from_before(requested, allocated, use, freed).tolist() == [
        GRADIENT, PARAMETER, OPTIMIZER_STATE, OPTIMIZER_STATE, GRADIENT,
    ]  # fmt: skip


@needs_shared
def test_a_fused_loss_stores_no_logits():
    program, operators = recorded("gpt2")
    loss = find_loss(operators)
    assert loss.vocabulary == 50257
    fused = fit_program(program, FitChanges(fused_loss=True), operators).after.peak_bytes.likely
    # Two temporaries and one activation of logits in fp32 hold the recorded peak.
    assert 3 * loss.logits * 4 * 0.5 < program.peak_bytes() - fused < 3 * loss.logits * 4
    changed = fuse_loss_memory(loss, operators)(program)
    assert changed.requested[operators.rows].max() < 0.9 * loss.logits * 4
    assert find_loss(recorded("resnet50")[1]) is None  # 1000 classes, fewer than the layer is wide


def test_8_bit_states_of_small_parameters_stay_in_fp32():
    program = memory_program(read(DATA / "run_gpt" / "memory.pickle.gz"))
    states = (program.use == OPTIMIZER_STATE) & (program.requested > 0)
    small = states & (program.requested < 4 * 4096)
    assert small.any()
    changed = optimizer_kind("adam8bit", foreach=True)(program)
    assert (changed.requested[small] == program.requested[small]).all()
    large = states & ~small
    assert changed.requested[large].sum() < 0.3 * program.requested[large].sum()


@needs_shared
@pytest.mark.parametrize("foreach", [True, False])
def test_an_adam_that_was_not_there_takes_the_roots_of_its_second_moments(foreach):
    """As the recorded Adam does: its temporaries are as large as the parameters."""
    program, _ = recorded("gpt2")
    plain = optimizer_kind("sgd", foreach=True)(program)
    changed = optimizer_kind("adam", foreach=foreach)(plain)
    roots = changed.bytes[len(plain.requested) :][changed.use[len(plain.requested) :] == TEMPORARY]
    weights = program.bytes[program.use == PARAMETER].sum()
    assert roots.sum() == foreach * weights * (len(program.step_bounds) - 1)
    held = np.where((program.use == TEMPORARY) & program.born_in(OPTIMIZER), program.bytes, 0)
    taken = curve_of(held, program.allocated, program.freed, program.end).max()
    assert taken == pytest.approx(weights, rel=0.02)


def test_queries_that_share_keys_in_fp32_leave_the_scores_stored():
    def step(size, span):
        repeated = Call("aten::clone", (24,), ((1, 2, 3, 2, 2),), False, 0, 1, 1, (True,), (span,))
        rows = np.arange(1)
        program = SimpleNamespace(requested=np.array([size]))
        program.recorded = program
        return program, BlockOperators([repeated], rows, rows, [rows], rows[:0])

    assert shares_keys_in_fp32(*step(96, 8))
    assert not shares_keys_in_fp32(*step(48, 8))  # in bf16
    assert not shares_keys_in_fp32(*step(96, 24))  # nothing is repeated
    if MODELS.exists():
        program, operators = recorded("gpt2")
        asked = FitChanges(fused_attention=True)
        assert not asked.stores_scores(program, operators)


def test_a_layers_result_is_the_largest_of_what_its_last_operator_makes():
    """A norm's result comes before its statistics."""
    layer = SimpleNamespace(stack=np.array([4, 7, 7, 7]), requested=np.array([900, 300, 8, 8]))
    assert Segment("layer", np.arange(4), 0).result(layer) == 1


class Recorded(SimpleNamespace):
    """A program of what a test needs of it, itself alone like itself."""

    __hash__ = object.__hash__


@pytest.mark.parametrize(("makes_gradient", "begin"), [(True, 6), (False, 3)])
def test_the_backward_of_a_layer_begins_behind_that_of_the_next(makes_gradient, begin):
    """Events: two allocations and the result's free, a free, two allocations and the free of what the layer keeps."""
    a, f = int(Action.ALLOC), int(Action.FREE_COMPLETED)
    gradients = np.zeros(10, bool)
    gradients[4] = makes_gradient
    step = Recorded(
        stack=np.array([1, 2]), requested=np.array([64, 64]), freed=np.array([9, 6]), end=10, makes_gradients=gradients,
        replayed=SimpleNamespace(events=SimpleNamespace(action=np.array([a, a, f, a, a, f, a, a, f]))),
    )  # fmt: skip
    assert backward_begin(step, Segment("layer", np.arange(2), 0)) == begin


def test_layers_whose_backward_is_not_recorded_are_only_dropped():
    program = memory_program(read(DATA / "run_gpt" / "memory.pickle.gz"))
    segments = find_segments(program)
    rows = np.concatenate([segment.rows for segment in segments])
    freed, reusable = program.freed.copy(), program.reusable.copy()
    freed[rows] = reusable[rows] = program.end
    kept = replace(program, freed=freed, reusable=reusable)
    changed = recompute_memory(segments)(kept)
    assert backward_begin(kept, segments[0]) == program.end
    assert changed.peak_bytes() < kept.peak_bytes()


def test_the_first_turn_of_a_loop_may_be_unlike_the_others():
    """Stacks 1 to 3 in the first turn, then four turns of 4 and 5; three blocks of one stack are one operator's."""
    stacks = np.array([1, 2, 2, 2, 3, *[4, 5] * 4])
    program = SimpleNamespace(
        stack=stacks,
        requested=np.full(len(stacks), 10),
        owners=SimpleNamespace(path=lambda stack: ("loop", f"line {stack}")),
    )
    turns = [rows.tolist() for _, rows in _Layers(program, np.arange(len(stacks))).found()]
    assert turns == [[0, 1, 2, 3, 4], [5, 6], [7, 8], [9, 10], [11, 12]]


def test_what_a_forward_takes_for_a_moment_is_taken_again():
    program = memory_program(read(DATA / "run_gpt" / "memory.pickle.gz"))
    segments = [find_segments(program)[-1]]
    segment = segments[0]
    passing = (program.allocated > segment.first(program)) & (program.freed <= segment.last(program))
    assert passing.any()
    plain = recompute_memory(segments)(program)
    fuller = recompute_memory(segments)(program.scaled(passing, 100.0))
    begin = backward_begin(program, segment)
    assert fuller.curve()[begin] > plain.curve()[begin]


@needs_shared
def test_scores_grow_with_the_square_of_the_sequence():
    program, operators = recorded("gpt2")
    scores = score_rows(program, operators)
    longer = sequence_times(2, operators)(program)
    assert scores.any()
    assert (longer.requested[scores] == 4 * program.requested[scores]).all()
    others = program.batched & ~scores
    assert (longer.requested[others] == 2 * program.requested[others]).all()


def test_the_time_grows_with_the_batch_and_the_largest_batch_fits():
    row = next(r for r in measured() if (r["model"], r["change"]) == ("gpt2", "batch_x4"))
    found = profkit.fit(MODELS / "gpt2", batch=4)
    assert found.after.step_ns.low <= row["after_ms"] * 1e6 <= found.after.step_ns.high
    assert found.memory_bytes == row["card_bytes"]
    assert found.fits is True
    largest = profkit.fit(MODELS / "gpt2", batch="max", memory_bytes=row["reserved_bytes"])
    assert 3.6 <= largest.settings["batch"] <= 4
    assert largest.fits is True


@needs_shared
@pytest.mark.parametrize("row", [r for r in measured() if "checkpoint" in r["change"]], ids=str)
def test_the_time_of_recomputing_layers_is_met(row):
    after = profkit.fit(MODELS / row["model"], **asked(row["change"])).after
    assert after.step_ns.likely == pytest.approx(row["after_ms"] * 1e6, rel=0.10)
    assert after.step_ns.low <= row["after_ms"] * 1e6 <= after.step_ns.high


def test_hooks_that_cost_the_host_most_lie_within_the_time_of_recomputing():
    trace = read(DATA / "run_gpt" / "trace.json.gz")
    program = memory_program(read(DATA / "run_gpt" / "memory.pickle.gz"))
    step = first_step(timelines([trace], Options())[0])
    asked = FitChanges(recompute="all")
    (priced,) = asked.priced(program, None)
    slowest = step.after_ns(priced.slowest)
    assert slowest > 1.1 * step.after_ns(priced.time)
    assert fit_program(program, asked, step=step).after.step_ns.high >= slowest


@needs_shared
def test_a_layer_lasts_until_the_next_one_begins():
    program, _ = recorded("gpt2")
    spans = layer_times(program, find_segments(program)).unix_ns
    assert all(spans[i][1] == spans[i + 1][0] for i in range(len(spans) - 1) if (i + 1) % 12)


@needs_shared
def test_a_gradient_that_stays_is_added_to_by_another_one():
    program, _ = recorded("gpt2")
    kept, old = keep_gradients(program), len(program.requested)
    made = (program.use == GRADIENT) & ~program.before
    assert sorted(kept.requested[old:]) == sorted(program.requested[made])
    assert (kept.freed[old:] > kept.allocated[old:]).all()
    assert (kept.allocated[:old][made] < program.allocated[made]).all()


@needs_shared
def test_inference_leaves_nothing_that_backward_or_the_optimizer_made():
    program, operators = recorded("gpt2")
    left = infer_only(operators)(program)
    later = program.born_in(BACKWARD) | program.born_in(OPTIMIZER)
    assert program.requested[later].any()
    assert not left.requested[later].any()
    assert left.requested[program.use == PARAMETER].sum() == program.requested[program.use == PARAMETER].sum()


@needs_shared
def test_layers_that_another_execution_timed_are_found_by_their_share_of_the_forward_pass():
    files = [MODELS / "gpt2" / "memory.pickle", MODELS / "gpt2" / "trace.json.gz"]
    same = profkit.fit(files, recompute="all").after.step_ns.likely
    program, trace = recorded("gpt2")[0], read(files[1])
    views, _ = timelines([replace(trace, unix_epoch_ns=None)], Options())
    other = fit_program(program, FitChanges(recompute="all"), step=first_step(views)).after.step_ns.likely
    assert other == pytest.approx(same, rel=0.01)
    assert other > 1.1 * fit_program(program, FitChanges(), step=first_step(views)).after.step_ns.likely


def test_the_unchanged_step_is_what_was_recorded():
    found = profkit.fit(DATA / "run_gpt")
    assert found.changes == []
    assert found.after.peak_bytes.likely == found.before.peak_bytes
    assert found.after.reserved_bytes.likely == found.before.reserved_bytes
    assert sum(row.before_bytes for row in found.by_category) == found.before.peak_bytes


def test_weights_and_state_do_not_grow_with_the_batch():
    rows = {row.category: row for row in profkit.fit(DATA / "run_gpt", batch=3).by_category}
    assert rows["parameter"].after_bytes == rows["parameter"].before_bytes
    assert rows["optimizer_state"].after_bytes == rows["optimizer_state"].before_bytes
    assert rows["activation"].after_bytes == pytest.approx(3 * rows["activation"].before_bytes, rel=0.02)


def peaks(**changes):
    found = profkit.fit(DATA / "run_gpt", **changes)
    return found, {row.category: row.after_bytes for row in found.by_category}


def test_gradients_that_stay_are_there_at_the_peak_of_the_forward_pass():
    plain, before = peaks()
    kept, held = peaks(keep_gradients=True)
    assert before.get("gradient", 0) < held["gradient"]
    assert held["gradient"] == pytest.approx(before["parameter"], rel=0.02)
    assert kept.after.peak_bytes.likely > plain.after.peak_bytes.likely
    assert {k: v for k, v in held.items() if k not in ("gradient", "temporary")} == {
        k: v for k, v in before.items() if k not in ("gradient", "temporary")
    }


def test_a_batch_in_parts_needs_the_activations_of_one():
    _, before = peaks()
    parts, held = peaks(accumulate=4)
    assert held["activation"] == pytest.approx(before["activation"] / 4, rel=0.02)
    assert held["gradient"] == pytest.approx(held["parameter"], rel=0.02)
    assert parts.after.step_ns.likely >= parts.before.step_ns


def test_an_offloaded_optimizer_leaves_no_state():
    found, held = peaks(offload_optimizer=True)
    assert held["optimizer_state"] == 0
    assert [note.code for note in found.notes] == ["offload-roughly-timed"]
    assert found.after.step_ns.high > peaks()[0].after.step_ns.high


def test_offloading_costs_copies_over_the_link_and_the_hosts_update():
    """A ViT of 86 million weights on an H200, whose host used one core, took 570 ms longer (reports/memory)."""
    hopper, pascal, unknown = (SimpleNamespace(compute_capability=each) for each in ("9.0", "6.1", ""))
    found = offload_ns(345_000_000, hopper)
    assert found.low < found.likely < 570e6 < found.high
    assert found.low > 345e6 / 63e9 * 1e9
    assert offload_ns(345_000_000, pascal).low > found.low
    assert offload_ns(345_000_000, None) == offload_ns(345_000_000, unknown)
    assert offload_ns(0, hopper).high == 0


def test_inference_keeps_no_gradient_state_or_activation_for_backward():
    plain, before = peaks()
    found, held = peaks(inference=True)
    assert held["gradient"] == held["optimizer_state"] == 0
    assert held["activation"] < before["activation"] / 4
    assert found.after.step_ns.likely < plain.after.step_ns.likely / 2


def test_the_fullest_rank_has_the_largest_parameter_and_all_have_buckets():
    plain = profkit.fit(DATA / "run_gpt")
    rows = {r.category: r for r in profkit.fit(DATA / "run_gpt", ranks=4, shard="zero1").by_category}
    program = memory_program(read(DATA / "run_gpt" / "memory.pickle.gz"))
    sizes = program.requested[program.use == PARAMETER]
    largest = sizes.max() / sizes.sum()
    share = rows["optimizer_state"].after_bytes / rows["optimizer_state"].before_bytes
    assert max(largest, 1 / 4) - 0.01 <= share <= max(largest, 1 / 4) + 0.05
    assert rows["parameter"].after_bytes == rows["parameter"].before_bytes
    before = {r.category: r.before_bytes for r in plain.by_category}
    assert rows["temporary"].after_bytes >= before.get("temporary", 0) + sizes.sum() * 0.95


def held_by_rank(stage, ranks):
    found = profkit.fit(DATA / "run_gpt", ranks=ranks, shard=stage)
    return found.after.peak_bytes.likely, {r.category: r for r in found.by_category}


def test_a_rank_of_fsdp_holds_its_share_and_a_gathered_layer_or_all_of_them():
    program = memory_program(read(DATA / "run_gpt" / "memory.pickle.gz"))
    whole = int(program.bytes[program.use == PARAMETER].sum())
    peaks, parameters = {}, {}
    for stage in ("zero2", "zero3"):
        peaks[stage], rows = held_by_rank(stage, 8)
        parameters[stage] = rows["parameter"].after_bytes
        assert rows["optimizer_state"].after_bytes == pytest.approx(
            rows["optimizer_state"].before_bytes / 8, rel=0.1
        )
    assert parameters["zero2"] == pytest.approx(whole * (1 + 1 / 8), rel=0.05)
    assert whole / 8 < parameters["zero3"] < 0.9 * parameters["zero2"]
    assert peaks["zero3"] < peaks["zero2"] < profkit.fit(DATA / "run_gpt").before.peak_bytes


@needs_shared
def test_a_layer_owns_the_parameters_whose_gradients_its_backward_makes():
    (step, *_) = _steps(recorded("gpt2")[0])
    assert [(each.bytes, len(each.gradients)) for each in step.layers] == [(28_351_488, 12)] * 12
    assert step.rest.bytes == (50257 + 1024 + 2) * 768 * 4


def test_the_text_says_over_how_many_ranks():
    found = profkit.fit(DATA / "run_gpt", ranks=4, shard="zero3")
    assert found.settings == {"shard": "zero3", "ranks": 4}
    assert "With shard zero3 over 4 ranks: before and after." in render_fit_text(found)
    assert "what the ranks exchange" in render_fit_text(found)


def test_what_is_one_ranks_already_is_not_shared_out_again():
    def step(*names):
        return SimpleNamespace(calls=[SimpleNamespace(name=name) for name in names])

    assert is_sharded(step("aten::mm", "c10d::_reduce_scatter_base_"))
    assert not is_sharded(step("aten::mm", "c10d::allreduce_"))


@pytest.mark.parametrize(
    ("memory_bytes", "fits"), [(10**6, False), (10**12, True)], ids=["too small", "large"]
)
def test_it_fits_only_when_the_upper_end_does(memory_bytes, fits):
    found = profkit.fit(DATA / "run_gpt", memory_bytes=memory_bytes)
    assert found.fits is fits
    within = profkit.fit(DATA / "run_gpt", memory_bytes=int(found.after.reserved_bytes.likely))
    assert within.fits is None


@needs_shared
@pytest.mark.parametrize(("model", "offered"), [("gpt2", True), ("resnet50", False)])
def test_a_loss_in_chunks_is_offered_where_a_vocabulary_is_large(model, offered):
    program, operators = recorded(model)
    sets = list(_sets(program, FitChanges(), operators))
    assert any("fused_loss" in names for names in sets) is offered
    assert not any("fused_loss" in names for names in _sets(program, FitChanges(), None))
    assert not any("fused_loss" in names for names in _sets(program, FitChanges(fused_loss=True), operators))


def test_of_the_gpus_own_memory_the_context_takes_its_part():
    """As much as was in use beside the allocator when memory ran out on the same GPU."""
    own = profkit.fit(DATA / "run_gpt")
    assert own.outside_bytes == 631 << 20
    assert profkit.fit(DATA / "run_gpt", memory_bytes=own.memory_bytes).outside_bytes == 0
    program = memory_program(read(DATA / "run_gpt" / "memory_oom.pickle"))
    told = fit_program(program, FitChanges(), gpu_bytes=own.memory_bytes).outside_bytes
    assert told == pytest.approx(631 << 20, rel=0.001)
    assert room_bytes(program, None, own.memory_bytes) == own.memory_bytes - told
    assert room_bytes(program, None, None) is None


def test_what_ran_out_of_memory_does_not_fit_into_the_same_gpu(tmp_path):
    """8 GiB reserved and 0.5 free of 79: others hold the rest, and 4 GiB were asked for."""
    gib, address = 2**30, 1 << 40
    frames = [{"filename": "/app/train.py", "line": 10, "name": "forward"}]
    alloc = {"addr": address, "size": 7 * gib, "stream": 0, "frames": frames}
    segment = {"action": "segment_alloc", "addr": address, "size": 8 * gib, "stream": 0, "frames": []}
    failed = {"action": "oom", "device_free": gib // 2, "size": 4 * gib, "stream": 0, "frames": frames}
    trace = [segment, {"action": "alloc", **alloc}, failed]
    held = {
        "device": 0, "address": address, "total_size": 8 * gib, "stream": 0, "segment_type": "large",
        "blocks": [
            {"address": address, "size": 7 * gib, "requested_size": 7 * gib, "state": "active_allocated", "frames": frames},
            {"address": address + 7 * gib, "size": gib, "requested_size": 0, "state": "inactive", "frames": []},
        ],
    }  # fmt: skip
    path = tmp_path / "oom.pickle"
    path.write_bytes(pickle.dumps({"segments": [held], "device_traces": [trace]}))
    program = memory_program(read(path))

    found = fit_program(program, FitChanges(), gpu_bytes=79 * gib)

    assert found.outside_bytes == 79 * gib - 8 * gib - gib // 2
    assert found.after.reserved_bytes.low > 8.5 * gib
    assert found.fits is False
    assert wanted_bytes(program) == 11 * gib


def test_the_interval_holds_what_blocks_of_an_unknown_use_may_do():
    """545 of 652 MiB are from before the history: weights without a gradient, or a cache that has the batch in it."""
    program = memory_program(read(DATA / "snapshot" / "cases" / "late.pickle.gz"))
    before = program.before & program.maybe_batched
    unknown = int(program.bytes[before].sum())
    assert unknown > 0.8 * program.peak_bytes()
    plain = fit_program(program, FitChanges()).after.peak_bytes
    twice = fit_program(program, FitChanges(batch=2))
    assert twice.after.peak_bytes.high > plain.high + unknown
    assert [note.code for note in twice.notes] == ["unexplained-blocks"]
    room = round(twice.after.peak_bytes.likely * 1.5)
    assert fit_program(program, FitChanges(batch=2), memory_bytes=room).fits is None
    assert not surely_fits(program, FitChanges(batch=2), None, room)
    upper = twice.after.reserved_bytes.high
    for room in np.linspace(twice.after.peak_bytes.high, upper, 5).round().astype(int).tolist():
        told = fit_program(program, FitChanges(batch=2), memory_bytes=room).fits
        assert surely_fits(program, FitChanges(batch=2), None, room) is (told is True)
    shared = fit_program(program, FitChanges(shard="zero3", ranks=8))
    assert shared.after.peak_bytes.low < plain.low - 0.8 * unknown
    assert [note.code for note in shared.notes] == ["ranks-not-timed", "unshared-blocks"]
    kept = fit_program(program, FitChanges(shard="zero1", ranks=8))
    assert [note.code for note in kept.notes] == ["ranks-not-timed"]
    longer = fit_program(program, FitChanges(sequence=2)).notes
    assert [note.code for note in longer] == ["scores-unknown", "unexplained-blocks"]


@needs_shared
def test_memory_that_grows_never_surely_fits():
    found = profkit.fit(SHARED / "recordings" / "snapshot" / "leak.pickle", memory_bytes=10**12)
    assert found.fits is None
    assert found.cheapest is None
    (grows,) = [note for note in found.notes if note.code == "grows"]
    assert grows.params["bytes"] == pytest.approx(16 << 20, rel=0.01)
    assert "later ones need more" in render_fit_text(found)


def test_what_cannot_be_answered_is_refused(tmp_path):
    with pytest.raises(AnalysisError, match="no memory snapshot"):
        profkit.fit(DATA / "run_gpt" / "trace.json.gz")
    with pytest.raises(AnalysisError, match="bf16 needs the operators"):
        profkit.fit(DATA / "run_gpt" / "memory.pickle.gz", bf16=True)
    with pytest.raises(AnalysisError, match="no layers"):
        profkit.fit(DATA / "run_gpt", recompute="nothing of the kind")
    with pytest.raises(ProfkitError, match="needs a limit"):
        profkit.fit(DATA / "run_gpt" / "memory.pickle.gz", batch="max")
    with pytest.raises(ProfkitError, match="not even"):
        profkit.fit(DATA / "run_gpt" / "memory.pickle.gz", batch="max", memory_bytes=1000)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"batch": True}, "batch=True is no multiple of the recorded one. Write a number"),
        ({"batch": "MAX"}, "batch='MAX' is no multiple"),
        ({"sequence": float("nan")}, "sequence=nan is no multiple"),
        ({"recompute": 6}, 'recompute=6 names no layers. Write "all", how many ("6")'),
        ({"recompute": ""}, "recompute='' names no layers"),
        ({"shard": "zero3"}, "belong together: give both"),
        ({"ranks": 2}, "belong together: give both"),
        ({"ranks": 2.0, "shard": "zero1"}, "ranks=2.0 is not a whole number"),
        ({"optimizer": "Adam"}, "Known: sgd, adam, adam8bit"),
        ({"memory": "24"}, "'24' is not a size. Write a number with its unit: 24GB"),
        ({"memory_bytes": "24GB"}, "memory_bytes='24GB' is no whole number of bytes. Write one, or memory="),
        ({"memory_bytes": -1}, "memory_bytes=-1 is no whole number of bytes"),
        ({"memory": "1GB", "memory_bytes": 1}, "given twice"),
        ({"plain_step_ns": "3"}, "plain_step_ns='3' is no whole number over 0. Write one, or plain_step="),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_what_to_write(asked, told):
    with pytest.raises(ProfkitError) as refused:
        profkit.fit(DATA / "run_gpt", **asked)
    assert told in str(refused.value)


@needs_shared
def test_short_memory_makes_the_allocator_give_free_segments_back():
    row = next(r for r in measured() if (r["model"], r["change"]) == ("resnet50", "base"))
    tight = fit_program(*recorded("resnet50")[:1], FitChanges(), memory_bytes=int(row["after_bytes"] * 1.1))
    assert tight.memory_bytes < tight.before.reserved_bytes
    assert tight.after.reserved_bytes.low < tight.after.reserved_bytes.high == tight.memory_bytes
    assert tight.fits is True
    assert [note.code for note in tight.notes] == ["gives-back"]
    hardly = fit_program(recorded("resnet50")[0], FitChanges(), memory_bytes=int(row["after_bytes"] * 1.005))
    assert hardly.fits is not True
    assert (
        fit_program(*recorded("resnet50")[:1], FitChanges(), memory_bytes=row["after_bytes"] // 2).fits
        is False
    )


def test_the_search_asks_the_same_of_each_set_as_is_told_of_it():
    files = [DATA / "run_gpt" / name for name in ("memory.pickle.gz", "trace.json.gz")]
    program, trace = memory_program(read(files[0])), read(files[1])
    operators, step = block_operators(program, trace), first_step(timelines([trace], Options())[0])
    verdicts = []
    for names in list(_sets(program, FitChanges(), operators))[::4]:
        changes = _with(FitChanges(), names)
        peak = fit_program(program, changes, operators, step=step).after
        for room in (round(peak.peak_bytes.high), round(peak.reserved_bytes.high), 90 << 20):
            told = fit_program(program, changes, operators, step=step, memory_bytes=room)
            fits = surely_fits(program, changes, operators, room)
            assert fits is (told.fits is True and told.after.peak_bytes.high <= room)
            verdicts.append(fits)
        assert likely_ns(program, changes, operators, step) == told.after.step_ns.likely
        plain = _with(FitChanges(), names - _NO_FASTER)
        assert told.after.step_ns.likely >= likely_ns(program, plain, operators, step)
    assert {True, False} == set(verdicts)
    plain = likely_ns(program, FitChanges(), operators, step)
    untimed = [likely_ns(program, _with(FitChanges(), {name}), operators, step) for name in _NO_FASTER]
    assert sorted(untimed)[:2] == [plain, plain]
    assert len(untimed) == 3


@needs_shared
def test_the_cheapest_changes_that_fit_are_named():
    found = profkit.fit(MODELS / "whisper", memory_bytes=6 * 10**9)
    assert found.fits is False
    assert found.cheapest.changes == ["fused-attention"]
    assert found.cheapest.after.reserved_bytes.high <= found.memory_bytes
    assert profkit.fit(MODELS / "whisper", memory_bytes=20 * 10**9).cheapest is None
    assert profkit.fit(MODELS / "whisper", memory_bytes=10**9).cheapest is None


@needs_shared
def test_as_few_layers_are_recomputed_as_make_it_fit():
    program, _ = recorded("gpt2")
    peaks = {
        which: recompute_memory(find_segments(program, which))(program).peak_bytes()
        for which in ("3", "6", "12", "all")
    }
    assert peaks["3"] > peaks["6"] > peaks["12"] == peaks["all"]
    asked = FitChanges(optimizer="adam", fused_optimizer=True)
    room = round(fit_program(program, replace(asked, recompute="6"), None).after.reserved_bytes.high)
    found = cheapest_fit(program, asked, None, step=None, memory_bytes=room, gpu_bytes=None)
    count = int(found.settings["recompute"])
    assert count <= 6
    fewer = replace(asked, recompute=str(count - 1))
    assert fit_program(program, fewer, None, memory_bytes=room).fits is not True
    (note,) = fit_program(program, FitChanges(recompute="2"), None).notes[-1:]
    assert (note.code, note.params["of"], len(note.params["layers"].split(", "))) == ("some-layers", 12, 2)


@needs_shared
def test_layers_that_keep_the_most_for_their_time_come_first():
    """Early blocks of a ResNet keep several times as much as late ones, and the host takes as long for each."""
    program, _ = recorded("resnet50")
    chosen = [each for each in find_segments(program, "3") if each.step == 0]
    assert len(chosen) == 3
    every = sorted(
        int(program.requested[each.rows].sum()) for each in find_segments(program) if each.step == 0
    )
    assert sum(int(program.requested[each.rows].sum()) for each in chosen) > 0.8 * sum(every[-3:])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([512, 4096, MIB, 3 * MIB, 12 * MIB, 25 * MIB]),
            st.integers(1, 9),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=40,
    )
)
@settings(deadline=None, max_examples=60)
def test_the_played_allocator_reserves_what_another_model_of_it_does(requests):
    """A block ``(bytes, lifetime, stream)`` begins at each time and ends after its lifetime."""
    model, alive = CachingAllocator(), {}
    for time, (size, lifetime, stream) in enumerate(requests):
        for ended in [t for t in alive if alive[t][0] == time]:
            model.free(alive.pop(ended)[1])
        alive[time] = (time + lifetime, model.alloc(size, stream=stream))
    sizes, lifetimes, streams = (np.array(column) for column in zip(*requests, strict=True))
    start = np.arange(len(requests))
    played = most_reserved(sizes, start, start + lifetimes, streams, AllocatorRules())
    assert played == max(total["reserved"] for total in model.stats)


@needs_shared
def test_the_report_and_fit_say_the_same_of_blocks_from_before_the_history():
    told = profkit.analyze(MODELS / "resnet50").document.memory.by_category
    before = profkit.fit(MODELS / "resnet50").by_category
    assert {row.category: row.bytes for row in told} == {row.category: row.before_bytes for row in before}
    assert "optimizer_state" in [row.category for row in told]
