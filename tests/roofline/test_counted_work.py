"""Counters of single kernels, matched with the same kernels of a timeline."""

import numpy as np
import pytest

import profkit
from profkit.readers import read
from profkit.roofline.counted_work import _starts, matched_counters
from tests.shared import DATA, SHARED, needs_shared

PROGRAMS = ("convnet", "mixed")


def pair(program):
    return read(DATA / "ncu" / f"{program}.json.gz"), read(DATA / "ncu" / f"{program}.csv.gz")


@pytest.mark.parametrize("program", PROGRAMS)
def test_nearly_every_kernel_is_matched_and_takes_about_as_long(program):
    trace, counters = pair(program)
    match = matched_counters(trace, trace.operations.start_ns.astype(np.int64), counters)
    matched = np.flatnonzero(match >= 0)
    own = (trace.operations.end_ns - trace.operations.start_ns)[matched]
    ratio = counters.counters.duration_ns[match[matched]] / own

    assert len(matched) >= 0.99 * len(counters.counters)
    assert len(set(match[matched].tolist())) == len(matched)
    # Long kernels take as long under ncu; short ones begin with cold caches there.
    assert np.median(ratio[own > 10_000]) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("program", PROGRAMS)
def test_bytes_of_the_report_are_those_that_were_counted(program):
    trace, counters = (DATA / "ncu" / f"{program}{end}" for end in (".json.gz", ".csv.gz"))
    alone, together = profkit.analyze(trace).kernels, profkit.analyze([trace, counters]).kernels
    measured = together[together.basis == "measured"]

    assert alone.basis.ne("measured").all()
    assert measured.total_ns.sum() > 0.99 * together.total_ns.sum()
    assert together.total_ns.sum() == alone.total_ns.sum()
    counted = read(counters).counters.dram_bytes.sum()
    assert (measured.dram_bytes * 1.0).sum() == pytest.approx(counted, rel=0.02)


def test_counters_of_another_program_are_left_alone():
    trace, _ = pair("mixed")
    _, counters = pair("convnet")

    assert (matched_counters(trace, trace.operations.start_ns.astype(np.int64), counters) == -1).all()


def test_the_counted_stretch_is_found_in_each_round():
    own, counted = np.array([9, 0, 1, 2, 0, 1, 2, 0, 1]), np.array([0, 1, 2])

    assert sorted(_starts(own, counted)) == [1, 4]


@needs_shared
def test_a_step_counted_once_is_found_in_each_of_three():
    folder = SHARED / "recordings" / "ncu_raw"
    trace, counters = read(folder / "llama2.json.gz"), read(folder / "llama2.csv")
    match = matched_counters(trace, trace.operations.start_ns.astype(np.int64), counters)

    assert np.bincount(match[match >= 0]).tolist() == [3] * 293
