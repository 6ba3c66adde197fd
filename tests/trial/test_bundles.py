"""What is tried together."""

import pytest

from profkit.trial.bundles import bundles_of, slow_first, stands_for, without_suspects


def none(name):
    return 1.0


def test_each_bundle_comes_after_those_it_has_to_beat():
    assert bundles_of(["tf32", "bf16", "set-to-none", "compile"], none) == [
        ("tf32",),
        ("tf32", "bf16"),
        ("tf32", "compile"),
        ("tf32", "bf16", "compile"),
    ]


def test_layouts_are_tried_with_the_bits_that_they_suit():
    layouts = "channels-last", "cudnn-benchmark"
    assert bundles_of(["tf32", "bf16", *layouts], none) == [("tf32",), ("tf32", "bf16", *layouts)]
    assert bundles_of(["tf32", *layouts], none) == [("tf32",), ("tf32", *layouts)]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        pytest.param(["garbage-collection"], [], id="nothing that helps often"),
        pytest.param(["bf16"], [("bf16",)], id="bf16 alone"),
        pytest.param(["compile"], [("compile",)], id="a compiler alone"),
    ],
)
def test_a_bundle_is_never_empty(names, found):
    assert bundles_of(names, none) == found


def test_what_a_recording_promises_is_part_of_it_and_first():
    promised = {"channels-last": 1.5, "tf32": 1.1}
    found = bundles_of(["tf32", "channels-last"], lambda name: promised.get(name, 1.0))
    assert found == [("channels-last", "tf32")]


def test_the_slowest_start_is_the_first():
    assert slow_first([("tf32",), ("tf32", "compile")]) == [("tf32", "compile"), ("tf32",)]
    assert slow_first([("tf32",), ("bf16",)]) == [("tf32",), ("bf16",)]


def test_one_compiler_at_a_time():
    bundles = [("tf32",), ("tf32", "compile"), ("tf32", "bf16", "compile")]
    assert slow_first(bundles) == [("tf32", "bf16", "compile"), ("tf32",)]


@pytest.mark.parametrize(
    ("guess", "wanted", "stands"),
    [
        pytest.param(("tf32", "pinned"), ("tf32",), True, id="no loader"),
        pytest.param(("tf32", "bf16"), ("tf32",), False, id="more than is wanted"),
        pytest.param(
            ("tf32", "bf16", "pinned", "compile"), ("tf32", "bf16", "compile"), True, id="a compiler too"
        ),
        pytest.param(("tf32",), ("tf32", "bf16"), False, id="less than is wanted"),
    ],
)
def test_a_guess_stands_for_what_it_does_to_the_program(guess, wanted, stands):
    assert stands_for(guess, wanted, idle={"pinned"}) is stands


def test_what_may_be_at_fault_is_left_out():
    loading, plain = ("tf32", "loader-workers", "pinned", "fused-optimizer"), ("tf32", "compile")
    assert without_suspects([loading, plain]) == [
        ("tf32", "fused-optimizer"),
        ("tf32", "loader-workers", "pinned"),
    ]
    assert without_suspects([("compile",)]) == []
