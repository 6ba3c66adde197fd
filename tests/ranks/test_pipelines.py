"""Sends and receives: whom each is with, who waits for whom, and whom that is attributed to."""

import json
import random

import pytest

from profkit.readers import read
from profkit.rendering.document_of import document_of
from profkit.report import Merged, summarise_file
from profkit.report.joining import Told
from profkit.report.views import Options
from tests.ranks.pipelines import MS, US, gpipe, play, write
from tests.ranks.reports import summarise

STEPS = 3


def even(ns):
    return lambda stage: ns


def compared(folder, programs, *, told="kernel", clocks=None, world=None, **how):
    """What was played, and what the report of its traces says."""
    played = play(programs, steps=STEPS, **how)
    paths = write(folder, played, programs, told=told, clocks=clocks, world=world)
    return played, summarise([read(path) for path in paths])


def by_rank(result):
    return {row.rank: row for row in result.ranks}


def waits(result):
    return {(w.rank, w.waits_for): w.waiting_ns for w in result.method.ranks.waits}


def findings(result):
    return {f.code: f.message for f in result.health.findings}


@pytest.mark.parametrize("told", ["kernel", "host", "both", "title"])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_waiting_in_messages_is_what_was_played(tmp_path, stages, told):
    played, result = compared(tmp_path, gpipe(stages, 4, even(5 * MS), even(11 * MS)), told=told)
    assert waits(result) == played.waits
    assert {rank: row.waiting_ns for rank, row in by_rank(result).items()} == {
        rank: played.waiting(rank) for rank in range(stages)
    }
    assert result.method.ranks.unmatched == 0


@pytest.mark.parametrize("depth", [1, 4, 8])
@pytest.mark.parametrize("off_ns", [0, 40 * US, -300 * US])
def test_a_sender_that_waits_for_room_in_the_buffer_waits_for_its_receiver(tmp_path, depth, off_ns):
    """A send ends with the receive that makes room, of an earlier message: seen on H200s, four messages deep."""
    programs = {
        0: [("run", 1 * MS), ("send", 1)] * 12,
        1: [("recv", 0), ("run", 3 * MS), ("send", 2)] * 12,
        2: [("recv", 1), ("run", 7 * MS)] * 12,
    }
    clocks = {1: off_ns, 2: 2 * off_ns}
    played, result = compared(tmp_path, programs, told="host", clocks=clocks, buffered=True, depth=depth)
    # A send of a buffer of one ends about when its own receive begins: a transfer counts as waiting there.
    assert waits(result) == pytest.approx(played.waits, abs=200 * US * (depth == 1))
    rows = by_rank(result)
    assert {rank: row.clock_offset_ns for rank, row in rows.items()} == {0: 0, 1: -off_ns, 2: -2 * off_ns}
    assert [rank for rank in rows if rows[rank].straggler] == [2]
    assert rows[2].late_ns <= 7 * MS


def test_where_receivers_wait_too_they_tell_how_deep_the_buffer_is_though_the_clock_is_far_off(tmp_path):
    programs = {
        0: [("run", 9 * MS), ("send", 1)] * 4 + [("run", 1 * MS), ("send", 1)] * 10,
        1: [("recv", 0), ("run", 3 * MS)] * 14,
    }
    _, result = compared(tmp_path, programs, told="host", clocks={1: -5 * MS}, buffered=True, depth=4)
    assert by_rank(result)[1].clock_offset_ns == 5 * MS
    assert set(waits(result)) == {(0, 1), (1, 0)}


@pytest.mark.parametrize("seed", range(12))
def test_uneven_stages_wrong_clocks_and_any_program_are_matched(tmp_path, seed):
    """Chains of messages, swaps and kernels of random length; every wait as it was played."""
    chance = random.Random(seed)
    stages, programs = chance.randint(2, 4), {}
    links = [chance.randrange(stages - 1) for _ in range(12)]
    programs = {rank: [] for rank in range(stages)}
    for low in links:
        for rank in range(stages):
            programs[rank].append(("run", chance.randint(1, 9) * MS))
        kind = chance.choice(["down", "up", "both"])
        first, second = {"down": ("send", "recv"), "up": ("recv", "send"), "both": ("both", "both")}[kind]
        programs[low].append((first, low + 1))
        programs[low + 1].append((second, low))
    clocks = {rank: chance.randint(-50, 50) * MS for rank in range(1, stages)}
    met = {rank for low in links for rank in (low, low + 1)}
    played, result = compared(tmp_path, programs, told="host", clocks=clocks, transfer=300 * US)
    assert waits(result) == played.waits
    reached = {rank for rank in met if by_rank(result)[rank].clock_offset_ns is not None}
    shifts = {r: by_rank(result)[r].clock_offset_ns + clocks.get(r, 0) for r in reached}
    assert set(shifts.values()) == {shifts[min(reached)]}


def test_a_slow_stage_is_the_straggler_though_its_neighbour_is_waited_for_too(tmp_path):
    """Stage 0 waits for stage 1, which waits for stage 2: all of it is attributed to stage 2."""
    slow = lambda ns: lambda stage: ns * (2 if stage == 2 else 1)  # noqa: E731
    _, result = compared(tmp_path, gpipe(4, 8, slow(5 * MS), slow(10 * MS)))
    rows = by_rank(result)
    assert [rank for rank, row in rows.items() if row.straggler] == [2]
    assert rows[2].critical is True
    assert rows[2].causes_wait_ns > 2 * rows[1].causes_wait_ns
    told = " ".join(map(str, (result.verdict.sentence, *result.verdict.caveats)))
    assert "Rank 2" in told
    assert result.verdict.straggler.bound == "compute"


@pytest.mark.parametrize("micro_batches", [1, 2, 8])
@pytest.mark.parametrize("stages", [2, 4])
def test_even_stages_have_a_bubble_and_no_straggler(tmp_path, stages, micro_batches):
    played, result = compared(tmp_path, gpipe(stages, micro_batches, even(5 * MS), even(10 * MS)))
    assert not any(row.straggler for row in result.ranks)
    assert "straggler" not in findings(result)
    assert "waits-in-messages" in findings(result)
    assert result.method.ranks.messages.ranks == list(range(stages))
    assert result.method.ranks.messages.exposed_waiting_ns == sum(played.waits.values())


def test_a_verdict_on_a_bubble_says_so_and_blames_nobody(tmp_path):
    _, result = compared(tmp_path, gpipe(4, 2, even(5 * MS), even(10 * MS)))
    assert result.verdict.bound == "communication"
    assert "GPUs wait for late ranks" in result.verdict.sentence
    assert "its bubble" in result.verdict.sentence
    assert result.verdict.straggler.rank is None


def test_what_is_charged_to_all_ranks_is_what_all_wait(tmp_path):
    played, result = compared(tmp_path, gpipe(3, 4, even(5 * MS), even(10 * MS)))
    attributed = sum(row.causes_wait_ns for row in result.ranks)
    assert attributed == pytest.approx(sum(played.waits.values()) / 2, abs=3)


def test_short_waits_are_no_bubble(tmp_path):
    programs = {0: [("run", 50 * MS), ("send", 1)], 1: [("run", 49 * MS), ("recv", 0)]}
    _, result = compared(tmp_path, programs)
    assert "waits-in-messages" not in findings(result)


def test_a_sender_whose_data_went_into_a_buffer_has_not_waited(tmp_path):
    """The receiver comes 30 ms later, the sender is gone after 0.2 ms, and waits only for the answer."""
    programs = {
        0: [("send", 1), ("run", 10 * MS), ("recv", 1)],
        1: [("run", 30 * MS), ("recv", 0), ("run", 10 * MS), ("send", 0)],
    }
    played, result = compared(tmp_path, programs, buffered=True)
    assert waits(result) == played.waits
    assert 3 * 25 * MS < waits(result)[0, 1] < 3 * 35 * MS


def test_messages_that_nobody_waited_in_tell_no_clock(tmp_path):
    """Every sender is gone long before its receiver comes: their ends have nothing to do with each other."""
    programs = {0: [("send", 1), ("run", 10 * MS)], 1: [("run", 30 * MS), ("recv", 0)]}
    _, result = compared(tmp_path, programs, buffered=True)
    assert [row.late_ns for row in result.ranks] == [None, None]


def test_a_sender_of_a_large_message_waits_for_its_receiver(tmp_path):
    programs = {0: [("send", 1), ("run", 10 * MS)], 1: [("run", 30 * MS), ("recv", 0), ("run", 10 * MS)]}
    played, result = compared(tmp_path, programs)
    assert by_rank(result)[0].waiting_ns == played.waiting(0) > 3 * 25 * MS


def test_messages_with_buffers_do_not_spoil_the_clocks(tmp_path):
    """Half of the sends are over long before their receivers enter; the others tell the time."""
    programs = {
        0: [("send", 1), ("run", 40 * MS), ("recv", 1)],
        1: [("run", 30 * MS), ("recv", 0), ("run", 30 * MS), ("send", 0)],
    }
    _, result = compared(tmp_path, programs, buffered=True, clocks={1: 7 * MS})
    assert by_rank(result)[1].clock_offset_ns == -7 * MS
    assert by_rank(result)[0].clock_error_ns < 20 * US


@pytest.mark.parametrize("told", ["host", "both"])
def test_a_batch_of_two_messages_is_one_kernel_and_waits_for_the_later_partner(tmp_path, told):
    """Rank 1 swaps with rank 0 and with rank 2 in turn; each kernel carries a send and a receive."""
    programs = {
        0: [("run", 5 * MS), ("both", 1)],
        1: [("run", 1 * MS), ("both", 0), ("both", 2)],
        2: [("run", 20 * MS), ("both", 1)],
    }
    played, result = compared(tmp_path, programs, told=told)
    assert waits(result) == played.waits
    rows = result.communication
    assert {row.collective for row in rows} == {"send_recv"}
    assert sum(row.count for row in rows) == STEPS * 4
    assert sum(row.waiting_ns for row in rows) == sum(played.waits.values())


@pytest.mark.parametrize(("world", "matched"), [(2, True), (None, True), (4, False)])
def test_without_a_partner_two_ranks_can_only_mean_each_other(tmp_path, world, matched):
    played, result = compared(tmp_path, gpipe(2, 4, even(5 * MS), even(9 * MS)), told="nowhere", world=world)
    assert (waits(result) if matched else by_rank(result)[0].waiting_ns) == (
        played.waits if matched else None
    )


def test_without_a_partner_three_ranks_are_not_compared(tmp_path):
    _, result = compared(tmp_path, gpipe(3, 4, even(5 * MS), even(9 * MS)), told="nowhere")
    assert result.method.ranks.matched == 0
    assert "ranks-not-compared" in findings(result)


@pytest.mark.parametrize(("other", "renamed"), [(5, {}), (1, {"<-0": "<-4", "->0": "->4"})])
def test_titles_with_the_numbers_of_a_group_name_nobody(tmp_path, other, renamed):
    """Rank 4 is number 0 of its group: ``nccl:send 0->1`` is not to rank 1, though that one waits for rank 4."""
    programs = gpipe(2, 4, even(5 * MS), even(9 * MS))
    paths = write(tmp_path, play(programs, steps=STEPS), programs, told="title", world=8)
    for path, rank in zip(paths, (4, other), strict=True):
        document = json.loads(path.read_text())
        document["distributedInfo"]["rank"] = rank
        text = json.dumps(document)
        for old, new in renamed.items() if rank == other else ():
            text = text.replace(old, new)
        path.write_text(text)
    assert summarise([read(path) for path in paths]).method.ranks.matched == 0


def test_two_pipelines_side_by_side_are_two_groups(tmp_path):
    """Ranks 0 and 1 make one, 2 and 3 another; a stage of one never waits for the other."""
    programs = gpipe(2, 4, even(5 * MS), even(9 * MS))
    programs |= {
        rank + 2: [(what, value if what == "run" else value + 2) for what, value in program]
        for rank, program in gpipe(2, 4, even(6 * MS), even(12 * MS)).items()
    }
    played, result = compared(tmp_path, programs)
    assert {w: ns for w, ns in waits(result).items() if max(w) < 2} == {
        w: ns for w, ns in played.waits.items() if max(w) < 2
    }


def test_a_merged_report_of_a_pipeline_is_that_of_one_process(tmp_path):
    programs = gpipe(3, 4, even(5 * MS), even(10 * MS))
    paths = write(tmp_path, play(programs, steps=STEPS), programs, told="host", clocks={1: 3 * MS})
    traces = [read(path) for path in paths]
    together = summarise(traces)
    apart = document_of(Merged.of([summarise_file([trace], Options()) for trace in traces]).report(Told()))
    assert apart.ranks == together.ranks
    assert apart.method.ranks == together.method.ranks
    assert apart.communication == together.communication
    assert sorted(findings(apart)) == sorted(findings(together))
