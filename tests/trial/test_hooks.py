"""What changes do to a program's modules, and what that costs them."""

import copy
import pickle
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

from torch.nn.modules import module as modules  # noqa: E402

from profkit.trial.changes import changes_named  # noqa: E402
from profkit.trial.messages import Facts  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def installed():
    """Installs changes, as the program's process does."""
    with ExitStack() as undo:

        def install(*names):
            found = changes_named(names)
            for change in found:
                change.install(undo, found)
            return found, undo

        yield install


@pytest.fixture
def model():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 3))


def loss_of(model):
    return torch.nn.functional.cross_entropy(model(torch.ones(2, 1, 4, 4)), torch.tensor([0, 1]))


@pytest.mark.parametrize("name", ["bf16", "channels-last", "fused-attention"])
def test_after_the_warm_up_no_hook_runs_at_each_layer(installed, model, name):
    (change,), undo = installed(name)
    loss_of(model)
    assert modules._global_forward_hooks
    change.warmed_up(undo)
    assert not modules._global_forward_hooks
    assert not modules._global_forward_pre_hooks


def test_bf16_stays_in_model_and_loss_after_the_warm_up(installed, model):
    (change,), undo = installed("bf16")
    loss_of(model)
    change.warmed_up(undo)
    assert model(torch.ones(2, 1, 4, 4)).dtype is torch.bfloat16
    assert loss_of(model).dtype is torch.float32  # cross entropy is one that autocast keeps in fp32
    assert not torch.is_autocast_enabled("cpu")
    undo.close()
    assert model(torch.ones(2, 1, 4, 4)).dtype is torch.float32


def test_a_program_with_autocast_of_its_own_keeps_it(installed, model):
    (change,), undo = installed("bf16")
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(torch.ones(2, 1, 4, 4))
        assert out.dtype is torch.float16
        torch.nn.functional.cross_entropy(out.float(), torch.tensor([0, 1])).backward()
        change.warmed_up(undo)
    assert change.applied == 0


def test_a_model_whose_weights_are_in_bf16_is_left_alone(installed, model):
    (change,), _ = installed("bf16")
    model.bfloat16()(torch.ones(2, 1, 4, 4, dtype=torch.bfloat16)).sum().backward()
    assert change.applied == 0


def test_a_model_in_bf16_can_still_be_copied_and_saved(installed, model):
    (change,), undo = installed("bf16")
    loss_of(model)
    change.warmed_up(undo)
    assert copy.deepcopy(model)(torch.ones(2, 1, 4, 4)).dtype is torch.float32
    pickle.loads(pickle.dumps(model))


def test_an_exception_in_the_model_closes_autocast(installed, model):
    (change,), undo = installed("bf16")
    loss_of(model)
    change.warmed_up(undo)
    with pytest.raises(RuntimeError):
        model(torch.ones(2, 5, 4, 4))
    assert not torch.is_autocast_enabled("cpu")


@pytest.fixture
def compiler(monkeypatch):
    """In place of a compiler: notes which hooks a compiled call meets."""
    met = []

    def compiled(call, mode=None):
        def run(*args):
            met.append(len(modules._global_forward_hooks) + len(modules._global_forward_pre_hooks))
            return call(*args)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    return met


@pytest.mark.parametrize("beside", [(), ("bf16",), ("channels-last", "fused-attention", "bf16")])
def test_a_compiled_model_meets_no_hook_from_its_first_call_on(installed, model, compiler, beside):
    found, undo = installed(*beside, "compile")
    loss_of(model).backward()
    for change in found:
        change.warmed_up(undo)
    for _ in range(2):
        loss_of(model).backward()
    assert compiler == [0, 0]
    assert found[-1].applied == 1
    assert model(torch.ones(2, 1, 4, 4)).dtype is (torch.bfloat16 if beside else torch.float32)
    undo.close()
    assert model(torch.ones(2, 1, 4, 4)).dtype is torch.float32
    assert len(compiler) == 3


def test_a_program_without_backward_is_compiled_too(installed, model, compiler):
    installed("compile")
    for _ in range(4):
        model(torch.ones(2, 1, 4, 4))
    assert compiler == [0, 0]


def test_both_models_of_a_pair_are_compiled(installed, compiler):
    maker, judge = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
    (change,), _ = installed("compile")
    for _ in range(2):
        judge(maker(torch.ones(3, 2)).detach()).sum().backward()
        judge(maker(torch.ones(3, 2))).sum().backward()
    assert change.applied == 2
    assert compiler == [0] * 6


class Training:
    """A small model, its optimizer, and a step."""

    def __init__(self):
        torch.manual_seed(0)
        self.net = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def step(self, factor=1.0, parts=1):
        self.optimizer.zero_grad()
        for _ in range(parts):
            loss = self.net(torch.ones(8, 4)).square().mean() * factor / parts
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()
        return loss.item(), norm.item()


@pytest.mark.parametrize("parts", [1, 3])
def test_fp16_trains_as_before_with_gradients_that_can_be_clipped(installed, parts):
    plain, first, scaled = Training(), Training(), Training()
    expected = [plain.step(parts=parts) for _ in range(4)]
    (change,), _ = installed("fp16")
    for _ in range(5):
        first.step(parts=parts)  # until the scale has come down to what fp16 holds
    found = [scaled.step(parts=parts) for _ in range(4)]
    assert found == [pytest.approx(each, rel=2e-2) for each in expected]
    assert change.applied


def test_fp16_leaves_out_a_step_with_infinite_gradients_and_lowers_the_scale(installed):
    training = Training()
    (change,), _ = installed("fp16")
    for _ in range(5):
        training.step()
    before, scale = training.net.weight.clone(), change._scale.item()
    training.step(factor=1e38)
    assert torch.equal(before, training.net.weight)
    assert change._scale.item() == scale / 2
    training.step()
    assert not torch.equal(before, training.net.weight)


@pytest.mark.parametrize(
    ("capability", "why"),
    [
        pytest.param((7, 0), None, id="V100"),
        pytest.param((7, 5), None, id="T4"),
        pytest.param((6, 1), "this GPU has no Tensor Cores", id="P40"),
        pytest.param((9, 0), "bf16 is as fast here, and needs no scaler", id="H100"),
    ],
)
def test_fp16_is_for_gpus_between_pascal_and_ampere(capability, why):
    (change,) = changes_named(["fp16"])
    assert change.obstacle(Facts(cuda=True, capability=capability, modules=1)) == why


class Attending(torch.nn.Linear):
    """A model with the switch of transformers."""

    def __init__(self, switch):
        super().__init__(2, 2)
        self.config = SimpleNamespace(_attn_implementation="eager")
        self._switch = switch

    def set_attn_implementation(self, name):
        self._switch(self.config, name)


def switches(config, name):
    config._attn_implementation = name


def raises(config, name):
    raise ValueError("has no sdpa yet")


def warns(config, name):
    """As transformers does for a model whose attention it knows as operators only."""


@pytest.mark.parametrize(
    ("switch", "applied", "refused"),
    [(switches, 1, ""), (raises, 0, "has no sdpa yet"), (warns, 0, "Attending computes its attention as")],
)
def test_attention_is_switched_where_the_model_knows_another(installed, switch, applied, refused):
    (change,), undo = installed("fused-attention")
    model = Attending(switch)
    model(torch.ones(1, 2)).sum().backward()
    assert change.applied == applied
    assert change.refused.startswith(refused)
    undo.close()
    assert model.config._attn_implementation == "eager"
