"""What a comparison says besides the step: of the setup, of kernels, of memory and of numerics, each by small reports."""

import pytest

from profkit.comparison import compare_reports
from profkit.comparison.likeness import shared_families, unlike
from profkit.comparison.memory_changes import compare_memory
from profkit.comparison.numerics_changes import numerics_changes
from profkit.comparison.side import Side
from profkit.model.report_memory import MemoryPhase
from profkit.model.report_numerics import Numerics, TensorRow
from profkit.model.rows import replace
from tests.comparison.recordings import of_steps, recorded
from tests.comparison.test_memory_changes import section

STEPS = [[90_000, 10_000]] * 10


def report(steps=STEPS, kernels=(), **changes):
    """A report of ten steps whose kernels are (name, family, ns, launches) and what is changed of them."""
    whole = of_steps(recorded("gpt_fp32"), steps)
    template = replace(recorded("gpt_fp32").kernels[0], grid=(8, 1, 1), block=(256, 1, 1), operators={})
    rows = [
        replace(
            template, name=name, short_name=name, family=family, total_ns=10 * ns, count=10 * count, **more
        )
        for name, family, ns, count, more in ((*row, {})[:5] for row in kernels)
    ]
    return replace(whole, kernels=rows, operators=[], phases=[], **changes)


def warnings(before, after):
    return {row.code: row for row in compare_reports([before], [after]).warnings}


def told(before, after, code):
    row = warnings(before, after)[code]
    return row.effect, dict(row.params)


def with_input(**changes):
    whole = report()
    return replace(whole, inputs=[replace(whole.inputs[0], **changes)])


def with_facts(**facts):
    return with_input(facts={**report().inputs[0].facts, **facts})


def test_the_numbers_of_steps_are_told_where_they_differ_and_weaken_where_they_are_few():
    assert "steps" not in warnings(report(), report())
    assert told(report(), report(STEPS[:8]), "steps") == ("note", {"before": 10, "after": 8})
    few = [
        row for row in compare_reports([report()], [report(STEPS[:2])]).warnings if row.effect == "weakens"
    ]
    assert [(row.code, row.params) for row in few] == [("steps", {"least": 2})]
    assert "weakens" not in {row.effect for row in warnings(report(STEPS[:3]), report(STEPS[:3])).values()}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(0, 0, ("weakens", {"least": 0})), (10, 0, ("forbids", {"side": "before"})), (0, 10, ("forbids", {"side": "after"}))],
)  # fmt: skip
def test_a_side_without_steps_is_told(before, after, expected):
    def cut(count):
        whole = report()
        return replace(whole, window=replace(whole.window, steps=whole.window.steps[:count]))

    assert told(cut(before), cut(after), "steps") == expected


def test_what_differs_in_the_recorders_is_told_with_both_sides():
    one, other = with_input(format="nsys"), with_input(format="kineto")
    assert told(one, other, "format") == ("host cost", {"before": "nsys", "after": "kineto"})
    shapes, none = with_facts(record_shapes="1"), with_facts(record_shapes="0")
    expected = {"option": "record_shapes", "before": "1", "after": "0"}
    assert told(shapes, none, "profiler-option") == ("host cost", expected)
    usage = {"option": "memory_usage", "before": "1", "after": "0"}
    assert told(with_facts(memory_usage="1"), with_facts(memory_usage="0"), "profiler-option") == ("note", usage)  # fmt: skip
    assert "profiler-option" not in warnings(shapes, shapes)
    operators = replace(report(), operators=recorded("gpt_fp32", "kineto").operators[:1])
    assert told(report(), operators, "profiler-option")[1] == {"table": "operators", "side": "after"}
    assert told(operators, report(), "profiler-option")[1] == {"table": "operators", "side": "before"}
    assert "profiler-option" not in warnings(operators, operators)


def test_inputs_and_launches_a_step_are_those_of_the_sides():
    found = compare_reports([report(kernels=[("a", "gemm", 1, 1 / 3)])], [with_input(path="x.sqlite")])
    assert [row.path for row in found.after.inputs] == ["x.sqlite"]
    assert (found.kernel_count.before, found.kernel_count.after) == (0.33, 0)


def kernels(before, after):
    found = compare_reports([report(kernels=before)], [report(kernels=after)])
    return [(row.name, row.name_after, row.matched_by, row.before_ns, row.after_ns) for row in found.kernels]


def test_a_kernel_of_one_side_takes_nothing_on_the_other():
    assert kernels([("gone", "gemm", 500, 1)], [("new", "norm", 70, 2)]) == [
        ("gone", None, "none", 500, 0),
        (None, "new", "none", 0, 70),
    ]


def test_kernels_of_other_names_match_by_their_operator_and_most_used_shape():
    small, large = {"grid": (2, 1, 1)}, {"grid": (64, 1, 1)}
    named = {"operators": {"aten::mul": 1}}
    other = {"operators": {"triton": 1}}
    before = [
        ("a", "elementwise", 400, 1, {**large, **named}),
        ("a", "elementwise", 10, 1, {**small, **named}),
    ]
    after = [("b", "pointwise", 300, 1, {**large, **named}), ("c", "other", 9, 1, {**small, **other})]
    assert kernels(before, after)[0] == ("a", "b", "operator and shape", 410, 300)


def test_kernels_that_share_a_name_are_of_the_family_with_most_time():
    found = compare_reports([report(kernels=[("a", "norm", 1, 1), ("a", "gemm", 9, 1)])], [report()])
    assert [row.family for row in found.kernels] == ["gemm"]


def test_a_new_kernel_is_named_where_it_is_most_of_its_familys_change():
    def parts(ns, family="gemm"):
        whole = [("a", "gemm", 80_000, 1)]
        found = compare_reports([report(kernels=whole)], [report([[100_000, 10_000]] * 10, [*whole, ("new", family, ns, 1)])])  # fmt: skip
        return {row.name: row.kernel for row in found.parts}

    assert parts(9_000) == {"gemm": "new"} | {name: None for name in parts(9_000) if name != "gemm"}
    assert parts(4_000)["gemm"] is None
    assert parts(9_000, "norm")["gemm"] is None


def test_programs_are_alike_by_what_they_share_of_the_busy_time():
    def sides(before, after):
        return Side([report(kernels=before)]), Side([report(kernels=after)])

    gemm, norm = ("x", "gemm", 22_000, 1), ("y", "norm", 68_000, 1)
    other = ("v", "copy", 68_000, 1)
    apart = sides([gemm, norm], [("w", "gemm", 22_000, 1), other])
    assert shared_families(*apart) == pytest.approx(22 / 90)
    assert unlike(*apart)
    assert not unlike(*sides([gemm, norm], [gemm, other]))  # a kernel of the same name
    third = ("x", "gemm", 30_000, 1), ("y", "norm", 60_000, 1)
    assert not unlike(*sides(third, [("w", "gemm", 30_000, 1), ("v", "copy", 60_000, 1)]))
    few = sides([("x", "gemm", 22_000, 1)], [("v", "copy", 22_000, 1)])
    assert not unlike(*few)  # half of the busy time and more is of no kernel


def test_operators_in_common_make_programs_alike():
    def side(name, family, *operators):
        row = recorded("gpt_fp32", "kineto").operators[0]
        made = report(kernels=[(name, family, 90_000, 1)])
        return Side([replace(made, operators=[replace(row, name=n, gpu_self_ns=ns) for n, ns in operators])])

    assert unlike(side("x", "gemm", ("a", 9)), side("v", "copy", ("b", 9)))
    assert not unlike(side("x", "gemm", ("a", 9)), side("v", "copy", ("a", 1), ("b", 8)))
    assert unlike(side("x", "gemm", ("a", 100)), side("v", "copy", ("a", 9), ("b", 91)))
    assert not unlike(
        side("x", "gemm", ("a", 6), ("a", 6), ("c", 88)), side("v", "copy", ("a", 12), ("b", 88))
    )


def memory(**by_phase):
    phases = [
        MemoryPhase(path=path, peak_allocated_bytes=size, net_bytes=0, count=1)
        for path, size in by_phase.items()
    ]
    return replace(section((4, 10)), by_phase=phases)


def test_peaks_of_phases_are_compared_largest_change_first():
    found = compare_memory(memory(a=10, b=100, c=None, d=5), memory(a=17, b=80, c=3, e=6)).by_phase
    assert [(row.path, row.before, row.after, row.change) for row in found] == [
        ("b", 100, 80, -20), ("a", 10, 17, 7), ("c", None, 3, None), ("d", 5, None, None), ("e", None, 6, None),
    ]  # fmt: skip


def numerics(norms, *, dtype="fp32", rank=0, largest=None, steps=(0, 10, 20)):
    tensor = TensorRow(
        name="head", tensor="activation", dtype=dtype, steps=steps, norms=norms, largest=largest or [1.0] * len(steps),
        smallest=None, values=1, zeros=0, below=0, infinite=0, nan=0, exponents=[],
    )  # fmt: skip
    row = Numerics(
        rank=rank, every=10, step_count=30, steps=steps, tensors=[tensor], updates=[], loss_scale=None, non_finite=[]
    )  # fmt: skip
    return Side([replace(report(), numerics=[row])])


def parted(before, after):
    found = numerics_changes(before, after)
    return found and [(row.step, row.rank, row.before, row.after) for row in found.changes]


def test_tensors_part_once_in_their_first_step_that_does():
    assert parted(numerics([1.0, 2.0, 3.0]), numerics([1.0, 2.5, 9.0])) == [(10, 0, 2.0, 2.5)]
    assert parted(numerics([1.0, 2.0, None]), numerics([1.0, 2.0, 9.0])) == [(20, 0, None, 9.0)]
    assert parted(numerics([1.0] * 3, rank=0), numerics([2.0] * 3, rank=1)) is None


@pytest.mark.parametrize(
    ("dtype", "rounding"), [("bf16", 2.0**-8), ("fp16", 2.0**-11), ("fp32", 1e-5), ("fp64", 1e-12)]
)
def test_tensors_part_where_rounding_once_does_not_explain_it(dtype, rounding):
    one = numerics([1.0] * 3, dtype=dtype)
    assert parted(one, numerics([1.0, 1.0, 1 - 0.99 * rounding], dtype=dtype)) == []
    assert len(parted(one, numerics([1.0, 1.0, 1 - 1.01 * rounding], dtype=dtype))) == 1
    assert parted(one, numerics([1.0] * 3, dtype=dtype, largest=[1.0, 1.0, 1 - 1.98 * rounding])) == []
    assert len(parted(one, numerics([1.0] * 3, dtype=dtype, largest=[1.0, 1.0, 1 - 2.02 * rounding]))) == 1
