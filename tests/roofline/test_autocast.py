"""Autocast: planted accidents are named with their place, and a clean program has none.

Programs run on the CPU, whose autocast leaves the same marks in a trace as that of a GPU; what only the GPU's lists
have is spelled out by hand.
"""

import contextlib
import json

import pytest

from profkit.model import RangeKind
from profkit.readers import read
from profkit.report.views import Options, analysed_views, view_trace
from profkit.roofline.autocast import autocast_rows, autocast_together
from profkit.roofline.precision_findings import precision_findings
from tests.builders import TraceBuilder
from tests.shared import DATA

WIDTH = 16


class Program:
    """A small model under autocast to bf16, with one update; subclasses plant an accident."""

    def __init__(self, torch):
        self.torch, self.functional = torch, torch.nn.functional
        self.first, self.last = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 8)
        self.optimizer = torch.optim.SGD([*self.first.parameters(), *self.last.parameters()], lr=0.1)
        self.x, self.y = torch.randn(4, WIDTH), torch.randint(8, (4,))
        self.scale = torch.nn.Parameter(torch.ones(WIDTH))

    def region(self, dtype=None):
        return self.torch.autocast("cpu", dtype or self.torch.bfloat16)

    def planted(self, hidden):
        return hidden

    def loss(self):
        with self.region():
            return self.functional.cross_entropy(self.last(self.planted(self.first(self.x))), self.y)

    def step(self):
        self.loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class ParameterInFp32(Program):
    def planted(self, hidden):
        return hidden * self.scale


class BufferInFp32(Program):
    def planted(self, hidden):
        return hidden + self.torch.zeros(4, WIDTH)[:1]


class LossOutside(Program):
    def loss(self):
        with self.region():
            logits = self.last(self.first(self.x))
        return self.planted(logits)

    def planted(self, logits):
        return self.functional.cross_entropy(logits, self.y)


class HeadOutside(Program):
    def loss(self):
        with self.region():
            hidden = self.first(self.x)
        return self.functional.cross_entropy(self.planted(hidden), self.y)

    def planted(self, hidden):
        return self.last(hidden.float())


class AroundBackward(Program):
    def step(self):
        with self.region():
            self.functional.cross_entropy(self.last(self.first(self.x)), self.y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class HalfByHand(Program):
    def planted(self, hidden):
        return hidden + self.x.half()


class WeightsCastAgain(Program):
    def step(self):
        for _ in range(3):
            self.loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Stacked(Program):
    def planted(self, hidden):
        return self.torch.cat([hidden, self.x], 1)[:, :WIDTH]


class Rotated(Program):
    """A table of positions in fp32."""

    def planted(self, hidden):
        return (hidden * self.torch.arange(WIDTH).cos()).to(hidden.dtype)


class InFp64(Program):
    """What numpy makes is fp64."""

    def planted(self, hidden):
        return (hidden * self.torch.ones(WIDTH, dtype=self.torch.float64)).float()


class CastForNothing(Program):
    def planted(self, hidden):
        return hidden.float().view(4, WIDTH) @ self.first.weight.t()


class AutocastOff(Program):
    def planted(self, hidden):
        with self.torch.autocast("cpu", enabled=False):
            return self.functional.linear(hidden.float(), self.first.weight)


class OwnFunction(Program):
    def planted(self, hidden):
        function = self.torch.autograd.Function

        class Product(function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.save_for_backward(x, weight)
                return (x @ weight).float()

            @staticmethod
            def backward(ctx, gradient):
                x, weight = ctx.saved_tensors
                return gradient @ weight.t(), x.t() @ gradient

        wide = (hidden + 0).float()
        return Product.apply(wide.abs(), self.first.weight.clone())


class HeadByEinsum(HeadOutside):
    """Of operators that take a list of tensors, no types are recorded."""

    def planted(self, hidden):
        return self.torch.einsum("bc,oc->bo", hidden.float(), self.last.weight)


class HalfWeights(Program):
    def __init__(self, torch):
        super().__init__(torch)
        self.inserted = torch.nn.Linear(WIDTH, WIDTH, bias=False).half()

    def planted(self, hidden):
        return self.inserted(hidden)


class OwnWeightsIn16Bits(Program):
    """No autocast: the model's own weights are bf16."""

    def __init__(self, torch):
        super().__init__(torch)
        for layer in (self.first, self.last):
            layer.to(torch.bfloat16)
        self.x = self.x.to(torch.bfloat16)

    def region(self, dtype=None):
        return contextlib.nullcontext()

    def planted(self, hidden):
        return (hidden * self.scale).to(hidden.dtype)


class WithoutScaler(Program):
    def region(self, dtype=None):
        return super().region(self.torch.float16)


def recorded(program, folder, *, steps=2):
    """The view of a trace of two steps, with stacks."""
    torch = program.torch
    program.step()
    with torch.profiler.profile(record_shapes=True, with_stack=True) as profiler:
        for _ in range(steps):
            program.step()
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    (view,) = analysed_views([read(path)], Options())
    return view


def accidents(view):
    found = autocast_together(autocast_rows(view))
    return [row for row in found.operators if not row.by_design]


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch


PLANTED = {
    ParameterInFp32: ("fp32-operand", "aten::mul", f"bf16 [4, {WIDTH}], fp32 [{WIDTH}]", 2),
    BufferInFp32: ("fp32-operand", "aten::add", f"bf16 [4, {WIDTH}], fp32 [1, {WIDTH}]", 2),
    LossOutside: ("loss-outside", "aten::cross_entropy_loss", "bf16 [4, 8]", 2),
    HeadOutside: ("product-outside", "aten::linear", f"fp32 [4, {WIDTH}], fp32 [8, {WIDTH}], fp32 [8]", 2),
    HeadByEinsum: ("product-outside", "aten::bmm", f"fp32 [1, 4, {WIDTH}], fp32 [1, {WIDTH}, 8]", 2),
    HalfWeights: ("other-type-by-hand", "aten::linear", f"fp16 {[WIDTH] * 2}, bf16 {[WIDTH] * 2}", 2),
    Stacked: ("promoted", "aten::cat", f"bf16 [4, {WIDTH}]", 2),
    HalfByHand: ("other-type-by-hand", "aten::to", f"fp32 [4, {WIDTH}], fp16 [4, {WIDTH}]", 2),
    Rotated: ("fp32-operand", "aten::mul", f"bf16 [4, {WIDTH}], fp32 [{WIDTH}]", 2),
    InFp64: ("fp32-operand", "aten::mul", f"bf16 [4, {WIDTH}], fp64 [{WIDTH}]", 2),
    CastForNothing: ("cast-undone", "aten::to", f"bf16 [4, {WIDTH}]", 2),
    AutocastOff: ("product-outside", "aten::linear", f"fp32 [4, {WIDTH}], fp32 [{WIDTH}, {WIDTH}]", 2),
    OwnWeightsIn16Bits: ("fp32-operand", "aten::mul", f"bf16 [4, {WIDTH}], fp32 [{WIDTH}]", 2),
    # Two weights and two biases in the second and third micro-batch of two steps.
    WeightsCastAgain: ("weights-cast-again", "aten::linear", "", 16),
}


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_a_planted_accident_is_named_with_its_place(kind, torch, tmp_path):
    code, name, takes, count = PLANTED[kind]
    rows = accidents(recorded(kind(torch), tmp_path))

    assert {(row.code, row.name, row.takes) for row in rows} == {(code, name, takes)}
    assert sum(row.count for row in rows) == count
    method = "loss" if kind is WeightsCastAgain else "planted"
    assert all(
        f"test_autocast.py:{getattr(kind, method).__code__.co_firstlineno} {method}" == row.where
        for row in rows
    )


def test_the_backward_pass_of_a_function_of_the_program_s_own_is_named(torch, tmp_path):
    rows = accidents(recorded(OwnFunction(torch), tmp_path))
    # Its result is fp32 by hand, and the next layer casts it back.
    (undone,) = [row for row in rows if row.code == "cast-undone"]
    rows.remove(undone)

    assert {row.code for row in rows} == {"custom-backward"}
    assert {row.where.split()[-1] for row in rows} == {"backward"}
    assert sum(row.count for row in rows) == 2 * 2


def test_autocast_around_backward_is_named(torch, tmp_path):
    rows = accidents(recorded(AroundBackward(torch), tmp_path))

    assert {row.code for row in rows} == {"around-backward"}
    assert {row.name for row in rows} == {"aten::mm"}


def test_fp16_without_a_scaler_is_found_and_with_one_it_is_not(torch, tmp_path):
    (finding,) = precision_findings(recorded(WithoutScaler(torch), tmp_path))
    program = WithoutScaler(torch)
    scaler = torch.amp.GradScaler("cpu")

    def step():
        scaler.scale(program.loss()).backward()
        scaler.step(program.optimizer)
        scaler.update()

    program.step = step

    assert finding.code == "fp16-without-scaler"
    assert finding.count == 2 * 3
    assert not precision_findings(recorded(program, tmp_path))


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_clean_program_has_no_accident(checkpointed, torch, tmp_path):
    program = Program(torch)
    if checkpointed:
        first = program.first
        program.first = lambda x: torch.utils.checkpoint.checkpoint(first, x, use_reentrant=False)
    view = recorded(program, tmp_path)
    (found,) = autocast_rows(view)

    assert not accidents(view)
    assert found.types == ["bf16"]
    assert {row.name for row in found.operators} == {"aten::cross_entropy_loss"}


class Softmax(Program):
    """A softmax in fp32, as models of language write it, beside which products take 16 bits again."""

    def planted(self, hidden):
        return self.functional.softmax(hidden.float(), -1) @ self.torch.eye(WIDTH)


class Averaged(Program):
    """Weights averaged in fp32 in each step, and gradients clipped and weights updated inside a region."""

    def step(self):
        self.loss().backward()
        with self.region():
            self.torch.nn.utils.clip_grad_norm_(self.first.parameters(), 1.0)
            self.optimizer.step()
        self.scale.data.mul_(0.9).add_(self.first.weight.detach()[0], alpha=0.1)
        self.optimizer.zero_grad()


class Convolved(Program):
    """The gradient of a bias is a sum that calls another form of itself, with casts inside."""

    def __init__(self, torch):
        super().__init__(torch)
        self.convolution = torch.nn.Conv2d(1, 2, 3, padding=1)

    def planted(self, hidden):
        return self.convolution(hidden.view(4, 1, 4, 4)).flatten(1)[:, :WIDTH] + hidden.sum()


class DecoratedFunction(Program):
    """Its backward pass opens the region of its forward pass again."""

    def planted(self, hidden):
        torch = self.torch

        class Product(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cpu")
            def forward(ctx, x, weight):
                ctx.save_for_backward(x, weight)
                return x @ weight

            @staticmethod
            @torch.amp.custom_bwd(device_type="cpu")
            def backward(ctx, gradient):
                x, weight = ctx.saved_tensors
                return gradient @ weight.t(), x.t() @ gradient

        return Product.apply(hidden, self.first.weight)


class In16BitsUnderAutocast(OwnWeightsIn16Bits):
    def region(self, dtype=None):
        return Program.region(self, dtype)

    def planted(self, hidden):
        return hidden


@pytest.mark.parametrize("kind", [Softmax, Averaged, Convolved, DecoratedFunction, In16BitsUnderAutocast])
def test_what_is_meant_is_no_accident(kind, torch, tmp_path):
    view = recorded(kind(torch), tmp_path)

    assert not accidents(view)
    assert autocast_rows(view)[0].types == ["bf16"]


def test_a_model_in_16_bits_without_accidents_has_no_row(torch, tmp_path):
    program = OwnWeightsIn16Bits(torch)
    program.planted = lambda hidden: hidden

    assert autocast_rows(recorded(program, tmp_path)) == []


def test_without_autocast_nothing_is_said(torch, tmp_path):
    program = ParameterInFp32(torch)
    program.region = lambda dtype=None: contextlib.nullcontext()

    assert autocast_rows(recorded(program, tmp_path)) == []
    assert autocast_together([]) is None


class Spelled:
    """A trace of a GPU, operator by operator: each opens at a number and holds those written inside it."""

    def __init__(self):
        self.made, self.now = TraceBuilder(format="kineto"), 0

    @contextlib.contextmanager
    def operator(self, name, *inputs, kernel=None):
        """``inputs`` are pairs of a type as torch writes it and a shape."""
        start = self.now = self.now + 10
        if kernel:
            at = self.now + 1
            self.made.kernel(100_000 + at, 100_000 + at + kernel, launch=(at, at + 2), name="kernel")
        yield
        self.now += 10
        dtypes, shapes = (self.made.text(json.dumps([each[i] for each in inputs])) for i in (0, 1))
        self.made.range(start, self.now, name, kind=RangeKind.OPERATOR, dtypes=dtypes, shapes=shapes)

    def cast(self, source, target, shape, ns=7):
        with contextlib.ExitStack() as stack:
            for name in ("aten::to", "aten::_to_copy"):
                stack.enter_context(self.operator(name, (source, shape)))
            stack.enter_context(self.operator("aten::copy_", (target, shape), (source, shape), kernel=ns))

    def view(self):
        return view_trace(self.made.trace(), [None])


HALF, FLOAT = "c10::Half", "float"


@pytest.mark.parametrize("name", ["aten::layer_norm", "aten::rms_norm"])
def test_a_norm_that_is_cast_up_and_down_again_costs_both_casts(name):
    made, shape, weight = Spelled(), [8, 32], [32]
    with made.operator(name, (HALF, shape), (FLOAT, weight)):
        made.cast(HALF, FLOAT, shape)
        with made.operator(name, (FLOAT, shape), (FLOAT, weight), kernel=50):
            pass
    with made.operator("aten::linear", (FLOAT, shape), (FLOAT, [64, 32])):
        made.cast(FLOAT, HALF, [64, 32], ns=11)
        made.cast(FLOAT, HALF, shape, ns=9)
        with made.operator("aten::linear", (HALF, shape), (HALF, [64, 32]), kernel=30):
            pass
    (found,) = autocast_rows(made.view())
    (norm,) = [row for row in found.operators if not row.by_design]
    (kept,) = [row for row in found.operators if row.by_design]

    assert (norm.code, norm.name, norm.takes, norm.ns, norm.count) == (
        "norm-cast-twice", name, "fp16 [8, 32]", 7 + 9, 1,
    )  # fmt: skip
    # The cast counts once.
    assert (kept.name, kept.ns) == (name, 50)
    assert (found.fp32_by_design_ns, found.fp32_by_accident_ns) == (50, 7 + 9)
    assert (found.casts, found.casts_ns, found.types) == (3, 7 + 11 + 9, ["fp16"])


def test_a_norm_outside_the_region_takes_16_bits():
    made, shape = Spelled(), [8, 32]
    with made.operator("aten::linear", (FLOAT, shape), (FLOAT, [32, 32])):
        made.cast(FLOAT, HALF, shape)
        with made.operator("aten::linear", (HALF, shape), (HALF, [32, 32]), kernel=30):
            pass
    with (
        made.operator("aten::softmax", (HALF, shape)),
        made.operator("aten::_softmax", (HALF, shape), kernel=20),
    ):
        pass
    (found,) = autocast_rows(made.view())
    (row,) = [row for row in found.operators if not row.by_design]

    assert (row.code, row.name, row.takes, row.ns) == ("norm-outside", "aten::softmax", "fp16 [8, 32]", 20)


@pytest.mark.parametrize("name", ["gpt_bf16", "dataloader_stall", "ddp_rank0", "convnet_fp16_channels_last"])
def test_our_clean_recordings_have_no_accident(name):
    (view,) = analysed_views([read(DATA / "kineto" / f"{name}.json.gz")], Options())

    assert not accidents(view)


def test_the_head_that_one_of_our_recordings_has_outside_is_found():
    (view,) = analysed_views([read(DATA / "ncu" / "mixed.json.gz")], Options())

    assert [(row.code, row.name) for row in accidents(view)] == [
        ("norm-cast-twice", "aten::layer_norm"),
        ("product-outside", "aten::linear"),
    ]
