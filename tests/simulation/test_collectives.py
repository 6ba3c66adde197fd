"""Collectives of several ranks: what of them is transfer, exposed, and can be hidden."""

from functools import partial

import numpy as np
import pytest

from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation import find_step
from profkit.simulation.collectives import asked_earlier, exposed_ns
from profkit.simulation.constants import LIKELY
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.exchanged import Exchanged, transfer_ns
from tests.advice.made_steps import BF16_GEMM, loop
from tests.simulation.steps import step_of

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def reducing(step, number, waits_us=(0, 300, 900, 0)):
    """A rank that comes early waits inside the collective."""
    step.launch(BF16_GEMM, 400, operators=("aten::mm",))
    step.launch(REDUCE, 100 + waits_us[number], operators=("nccl:all_reduce",), stream=13)
    step.launch(REDUCE, 50, operators=("nccl:all_reduce",), stream=13)


def test_the_transfer_of_a_collective_is_the_shortest_of_its_place_in_any_step():
    step = step_of(reducing)
    facts = step.facts

    found = transfer_ns(Exchanged.of([facts.view]), facts.view, facts.program)

    assert found.tolist() == [400_000.0, 100_000.0, 50_000.0]


def test_the_rank_that_comes_last_shows_the_transfer_to_the_others():
    late, early = (
        loop(partial(reducing, waits_us=(0, 0, 0, 0))),
        loop(partial(reducing, waits_us=(900, 900, 900, 900))),
    )
    views, _ = timelines([early, late], Options())
    facts = find_step(views[0], 0).facts

    assert facts.program.duration_ns[1] == 1_000_000
    assert transfer_ns(Exchanged.of(views), facts.view, facts.program)[1] == 100_000
    assert transfer_ns(Exchanged.of(views[:1]), facts.view, facts.program)[1] == 1_000_000


def test_only_what_no_kernel_hides_of_a_collective_is_exposed():
    def body(step, number):
        at = max(step.device, step.host + 20)
        step.launch(BF16_GEMM, 400, operators=("aten::mm",))
        step.builder.kernel(
            (at + 300) * 1000,
            (at + 600) * 1000,
            launch=((step.host - 4) * 1000, (step.host - 2) * 1000),
            name=REDUCE,
            stream=13,
        )
        step.device = at + 600

    facts = step_of(body).facts
    collectives = np.array([k.is_collective for k in facts.kernels])

    alone = exposed_ns(facts, collectives)

    assert alone[~collectives].tolist() == [0.0]
    assert alone[collectives] == pytest.approx([200_000], abs=30_000)


def test_prefetched_gathers_hide_most_of_their_transfer_but_the_first_and_no_more_than_kernels_cover():
    def body(step, number, us=900):
        for _ in range(4):
            step.launch(
                REDUCE.replace("AllReduce_Sum_f32", "AllGather"),
                500,
                operators=("nccl:all_gather",),
                stream=13,
            )
            step.launch(BF16_GEMM, us, operators=("aten::mm",))

    def after(us):
        step = step_of(partial(body, us=us))
        chosen = np.array([k.is_collective for k in step.facts.kernels])
        edited = EditedStep(step.facts, step.program, LIKELY)
        asked_earlier(
            chosen, transfer_ns(Exchanged.of([step.facts.view]), step.facts.view, step.facts.program)
        )(edited)
        return edited.duration_ns[chosen]

    assert after(900) == pytest.approx([500_000, 0, 0, 0], abs=10_000)
    # 1500 us of gathers and 200 us of kernels to hide them behind.
    assert after(50).sum() == pytest.approx(2_000_000 - 200_000, rel=0.02)
