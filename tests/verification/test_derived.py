"""Prices, estimates and efficiencies that do not follow from what they rest on are found."""

from functools import cache

import pytest

import profkit
from profkit.model.rows import Interval
from profkit.model.rows import replace as changed
from profkit.verification import verify
from tests.shared import DATA

OF_THE_HOST = DATA / "kineto" / "tiny_mlp.json.gz"
OF_THE_MEMORY = DATA / "kineto" / "elementwise_chain.json.gz"


@cache
def verified(file):
    report = profkit.analyze(file).document
    assert verify(report, [str(file)]).differing == []
    return report


def of_the_first(rows, **values):
    return [changed(rows[0], **values), *rows[1:]]


def with_step(report, likely):
    step = report.step.unprofiled_ns
    return changed(report, step=changed(report.step, unprofiled_ns=changed(step, low=likely, likely=likely)))


def with_saving(report, part):
    likely = part * report.step.unprofiled_ns.likely
    limits = of_the_first(
        report.limits, saving_if_twice_as_fast_ns=Interval(low=0, likely=likely, high=2 * likely)
    )
    return changed(report, limits=limits)


def with_efficiency(report, factor):
    at = next(i for i, row in enumerate(report.kernels) if row.bound == "memory" and row.efficiency)
    rows = list(report.kernels)
    rows[at] = changed(rows[at], efficiency=rows[at].efficiency * factor)
    return changed(report, kernels=rows)


TAMPERED = {
    "step.unprofiled_ns of the recorded": lambda r: with_step(r, 1.1 * r.step.recorded_ns),
    "step.unprofiled_ns of its work": lambda r: with_step(r, 1_000.0),
    "step.unprofiled_ns.low": lambda r: changed(
        r, step=changed(r.step, unprofiled_ns=changed(r.step.unprofiled_ns, low=r.step.recorded_ns * 2.0))
    ),
    "of half a step": lambda r: with_saving(r, 0.6),
    "pace of a tenth": lambda r: with_saving(r, 0.05),
    ".saving_ns": lambda r: changed(
        r, advice=of_the_first(r.advice, saving_ns=r.advice[0].saving_ns + 9_000)
    ),
    ".speedup": lambda r: changed(
        r, advice=of_the_first(r.advice, speedup=changed(r.advice[0].speedup, likely=9.0, high=10.0))
    ),
    ".efficiency": lambda r: with_efficiency(r, 0.5),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_number_that_does_not_follow_is_found(name):
    file = OF_THE_MEMORY if name == ".efficiency" else OF_THE_HOST
    report = TAMPERED[name](verified(file))
    assert any(name in figure for figure, *_ in verify(report, [str(file)]).differing)
