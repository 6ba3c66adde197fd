"""What autocast does to blocks: which results are in bf16, by what their operators take."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from profkit.memory.categories import PARAMETER, TEMPORARY, UNKNOWN_USE
from profkit.readers import read
from profkit.simulation.autocast_memory import _Forward
from profkit.simulation.block_operators import BlockOperators, Call, _alike, _inputs, block_operators
from profkit.simulation.fit_changes import in_steps_alike
from profkit.simulation.memory_program import memory_program
from tests.shared import DATA, needs_shared
from tests.simulation.test_fit import recorded


def factors_under_autocast(*calls, **stays):
    """By how much the results of calls change."""
    return followed(*calls, **stays).factors().tolist()


def followed(*calls, parameters=(), use=PARAMETER):
    """Calls ``(name, sizes taken, elements made, more of Call)`` followed through autocast; all results stay to the end."""
    made = []
    for number, (name, taken, _, more) in enumerate(calls):
        known = {"sequence": number, "first": number + 1, "last": number + 1, "backward": False, **more}
        made.append(Call(name, taken, tuple((n,) for n in taken), **known))
    results = 4 * np.array([elements for _, _, elements, _ in calls])
    count, rows = len(results) + len(parameters), np.arange(len(results))
    program = SimpleNamespace(
        requested=np.concatenate([results, 4 * np.array(parameters, int)]),
        allocated=np.append(rows + 1, np.zeros(len(parameters), int)),
        freed=np.full(count, 99),
        use=np.append(np.full(len(results), TEMPORARY), np.full(len(parameters), use)),
        before=np.arange(count) >= len(results),
        end=99,
    )
    forward = _Forward(program, BlockOperators(made, rows, rows, [rows], rows[:0]))
    forward.run()
    return forward


def test_indices_do_not_make_a_result_fp32_under_autocast():
    norm, product = ("aten::native_layer_norm", (8,), 8, {}), ("aten::mm", (8, 6), 16, {})
    picked = ("aten::index_select", (16, 8), 32)
    assert factors_under_autocast(norm, product, (*picked, {"floats": (True, False)}))[-1] == 0.5
    assert factors_under_autocast(norm, product, (*picked, {"floats": (True, True)}))[-1] == 1.0


def test_a_part_of_a_larger_result_has_its_type_under_autocast():
    """The norm's result is as large as the queries, which lie among keys and values."""
    norm, product = ("aten::native_layer_norm", (8,), 8, {}), ("aten::mm", (8, 6), 24, {})
    assert factors_under_autocast(norm, product, ("aten::mul", (8,), 8, {"spans": (20,)}))[-1] == 0.5
    assert factors_under_autocast(norm, product, ("aten::mul", (8,), 8, {"spans": (8,)}))[-1] == 1.0


def test_a_parameter_and_the_other_operand_make_a_sum_fp32_under_autocast():
    product, norm = ("aten::mm", (7, 6), 16, {}), ("aten::native_layer_norm", (16,), 16, {})
    scaled = ("aten::mul", (16, 4), 16, {})
    assert factors_under_autocast(product, scaled)[-1] == 0.5
    assert factors_under_autocast(product, scaled, parameters=(4,))[-1] == 1.0
    assert factors_under_autocast(product, scaled, parameters=(4,), use=UNKNOWN_USE)[-1] == 1.0  # a buffer
    assert factors_under_autocast(norm, product, ("aten::add", (16, 16), 16, {}))[-1] == 1.0
    assert factors_under_autocast(product, product, ("aten::add", (16, 16), 16, {}))[-1] == 0.5
    assert factors_under_autocast(norm, ("aten::_conv_depthwise2d", (16, 9), 16, {}))[-1] == 0.5


def test_steps_unlike_the_traced_one_are_left_out_where_operators_are_needed():
    program, operators = recorded_run()
    assert len(operators.repeats) > 1
    unlike = replace(operators, repeats=operators.repeats[:1], passing=operators.repeats[-1])
    changed = in_steps_alike(lambda program: program, unlike)(program)
    assert not changed.requested[operators.repeats[-1]].any()
    others = np.setdiff1d(np.arange(len(program.requested)), operators.repeats[-1])
    assert (changed.requested[others] == program.requested[others]).all()


def test_steps_of_one_code_are_alike_when_sizes_differ():
    program = SimpleNamespace(requested=np.array([1, 2, 1, 3, 5, 6]), stack=np.array([7, 8, 7, 8, 7, 9]))
    one, other, third = np.array([0, 1]), np.array([2, 3]), np.array([4, 5])
    assert _alike(program, one, other)
    assert not _alike(program, one, third)
    assert not _alike(program, one, other[:1])


def recorded_run():
    program = memory_program(read(DATA / "run_gpt" / "memory.pickle.gz"))
    return program, block_operators(program, read(DATA / "run_gpt" / "trace.json.gz"))


@needs_shared
def test_types_and_spans_of_inputs_are_read_from_the_trace():
    """GPT-2's queries, keys and values are parts of one product; its embedding takes indices."""
    _, operators = recorded("gpt2")
    embedding = next(call for call in operators.calls if call.name == "aten::embedding")
    assert embedding.floats[:2] == (True, False)
    assert [size for size, _ in embedding.float_inputs()] == list(embedding.sizes[:1])
    parts = [
        call
        for call in operators.calls
        if any(b > a > 0 for a, b in zip(call.sizes, call.spans, strict=False))
    ]
    assert any(2 * call.sizes[0] < call.spans[0] < 3 * call.sizes[0] for call in parts if not call.backward)


def inputs_of(*texts):
    """The inputs of an operator whose shapes, types and strides a trace tells as texts."""
    return _inputs(SimpleNamespace(strings=[json.dumps(text) for text in texts]), 0, 1, 2)


def test_a_list_of_tensors_is_as_many_inputs():
    joined = inputs_of([[[2, 3], [2, 1]], []], ["TensorList", "Scalar"], [[[3, 1], [1, 1]], []])
    assert joined == (((2, 3), (2, 1), ()), (True, True, True), (6, 2, 0))
    indexed = inputs_of([[5, 4], [[2], [2]]], ["float", "TensorList"], [[4, 1], [[1], [1]]])
    assert indexed == (((5, 4), (2,), (2,)), (True, False, False), (20, 2, 2))
    assert inputs_of([[[2, 3], 7], 8], ["TensorList", ["x"]], ["a", 1])[0] == ((2, 3), (), ())


def test_a_product_takes_what_came_after_the_norm_and_no_other_product():
    """Three projections take a norm's result; a convolution behind a residual takes the residual's."""
    norm, product = ("aten::native_layer_norm", (8,), 8, {}), ("aten::mm", (8, 6), 8, {})
    assert factors_under_autocast(norm, product, product) == [1.0, 0.5, 0.5]
    residual = ("aten::add", (8, 8), 8, {})
    forward = followed(norm, product, residual, product, product)
    assert [len(tensor.taken_by) for tensor in forward._all] == [2, 1, 2, 0, 0]
    scaled = ("aten::mul", (8,), 8, {})
    forward = followed(norm, product, scaled, product, product)
    assert [len(tensor.taken_by) for tensor in forward._all] == [3, 1, 0, 0, 0]


def test_the_gradient_of_a_softmax_is_in_the_type_of_what_it_takes():
    logits, softmax = ("aten::mm", (6, 9), 16, {}), ("aten::_log_softmax", (16,), 16, {"sequence": 5})
    asked = ("aten::to", (16,), 0, {})
    assert followed(logits, ("aten::log_softmax", (16,), 0, {}), asked, softmax)._by_sequence[5]
    assert not followed(logits, asked, ("aten::view", (16,), 0, {}), softmax)._by_sequence[5]
    assert followed(logits, softmax)._by_sequence[5]
