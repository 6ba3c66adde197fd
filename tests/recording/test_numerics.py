"""profkit.numerics: what tensors hold, found where it was planted, and nothing of the training changes."""

import copy
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import profkit
from profkit.model.report_numerics import FIRST_EXPONENT
from profkit.readers import read
from profkit.rendering.sentences.numerics import scale_text

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

from profkit.recording import program_events  # noqa: E402
from profkit.recording.notices import RecordingWarning  # noqa: E402
from profkit.recording.tensor_statistics import LARGEST_SAMPLE, measured, sample_of  # noqa: E402
from profkit.recording.tensor_statistics import read as read_statistics  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """The models are so small that threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Block(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.linear, self.act = torch.nn.Linear(width, width), torch.nn.GELU()

    def forward(self, x):
        return x + self.act(self.linear(x))


class Net(torch.nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(layers))
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build(dtype=torch.float32, optimizer=torch.optim.AdamW, **options):
    torch.manual_seed(0)
    model = Net().to(dtype)
    return model, optimizer(model.parameters(), **({"lr": 1e-3} | options))


def train(model, optimizer, steps, scale=1.0, run=None):
    losses = []
    generator = torch.Generator().manual_seed(1)
    dtype = next(model.parameters()).dtype
    for _ in range(steps):
        optimizer.zero_grad()
        batch = torch.randn(32, 16, generator=generator).to(dtype)
        loss = (model if run is None else run)(batch).float().square().mean()
        (loss * scale).backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def recorded(tmp_path, train_it, model=None, every=1):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RecordingWarning)
        with profkit.numerics(model, every=every, folder=tmp_path / "run") as recorder:
            train_it()
    report = profkit.analyze(recorder.file)
    return report.document.numerics[0]


def codes(numerics):
    return {row.code: row for row in numerics.findings}


def nobody_listens():
    return not any(program_events._listeners.values()) and not program_events._undo


def test_losses_are_bit_equal_and_nothing_is_left_behind(tmp_path):
    expected = train(*build(), 12)
    model, optimizer = build()
    found = []
    numerics = recorded(tmp_path, lambda: found.extend(train(model, optimizer, 12)), model, every=5)
    assert found == expected
    assert list(numerics.steps) == [0, 5, 10]
    assert numerics.step_count == 12
    assert nobody_listens()
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert not any(module._forward_hooks or module._backward_hooks for module in copied.modules())
    assert not any(parameter._backward_hooks for parameter in model.parameters())


def test_a_model_can_be_pickled_while_it_is_recorded(tmp_path):
    model, optimizer = build()
    with profkit.numerics(model, every=1, folder=tmp_path / "run"):
        train(model, optimizer, 2)
        pickle.loads(pickle.dumps(model))


class Around(torch.nn.Module):
    """A linear layer with something around it."""

    def __init__(self, before=lambda x: x, after=lambda x: x):
        super().__init__()
        self.linear, self.before, self.after = torch.nn.Linear(16, 16), before, after

    def forward(self, x):
        return self.after(self.linear(self.before(x)))


class Table(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(16))

    def forward(self):
        return self.weight


def test_of_a_module_that_runs_twice_the_first_output_and_its_gradient_are_looked_at(tmp_path):
    model = torch.nn.Linear(16, 16)
    kept = []

    def run(batch):
        kept.append(model(batch))
        kept[0].retain_grad()
        return model(torch.tanh(kept[0]))

    numerics = recorded(
        tmp_path, lambda: train(model, torch.optim.SGD(model.parameters(), 0.1), 1, run=run), model
    )
    norms = {row.tensor: row.norms[0] for row in numerics.tensors if row.name == "Linear"}
    assert norms["activation"] == pytest.approx(kept[0].norm().item())
    assert norms["gradient"] == pytest.approx(kept[0].grad.norm().item())


def negative(x):
    """With the sign kept aside."""
    return torch._neg_view(x)


@pytest.mark.parametrize(
    ("gives", "looked_at"),
    [
        (lambda x: (None, torch.arange(3), [x, {}]), True),
        (lambda x: {"loss": None, "hidden": x}, True),
        (negative, True),
        (lambda x: x.to(torch.complex64), False),
        (lambda x: x.argmax(-1), False),
        (lambda x: x[:0], False),
        (lambda x: x.detach().to(torch.float8_e4m3fn), False),
        (lambda x: x.detach().to_sparse(), False),
        (lambda x: (), False),
    ],
)
def test_of_what_a_module_gives_the_first_tensor_with_statistics_is_looked_at(tmp_path, gives, looked_at):
    model = Around(after=gives)
    numerics = recorded(
        tmp_path,
        lambda: train(
            model,
            torch.optim.SGD(model.parameters(), 0.1),
            1,
            run=lambda x: (model(x), model.linear(x))[1],
        ),
        model,
    )
    names = {row.name for row in numerics.tensors if row.tensor == "activation"}
    assert names == {"linear"} | ({"Around"} if looked_at else set())


def test_a_parameter_that_a_module_gives_keeps_no_hook(tmp_path):
    table = Table()
    model = torch.nn.ModuleList([Around(), table])
    numerics = recorded(
        tmp_path,
        lambda: train(
            model, torch.optim.SGD(model.parameters(), 0.1), 1, run=lambda x: model[0](x) + table()
        ),
        model,
    )
    assert not table.weight._backward_hooks
    assert {(row.tensor, row.name) for row in numerics.tensors} >= {
        ("activation", "1"), ("weight_gradient", "1.weight"),
    }  # fmt: skip


def test_tensors_without_values_are_left_out(tmp_path):
    from torch._subclasses.fake_tensor import FakeTensorMode

    model, optimizer = build()

    def run():
        with FakeTensorMode():
            torch.nn.Linear(4, 4)(torch.ones(2, 4))
        train(model, optimizer, 1)

    assert recorded(tmp_path, run).tensors


def test_gradients_that_a_fused_optimizer_unscales_are_told_unscaled(tmp_path):
    norms = []
    for scaled in (False, True):
        model, optimizer = build(fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, enabled=scaled)

        def run(model=model, optimizer=optimizer, scaler=scaler):
            scaler.scale(model(torch.ones(4, 16)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()

        numerics = recorded(tmp_path, run, model)
        norms.append([row.norms[0] for row in numerics.tensors if row.tensor == "weight_gradient"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)


def test_the_step_in_which_a_program_fails_is_kept(tmp_path):
    model, optimizer = build()

    def fail(batch):
        found = model(batch * (float("nan") if optimizer.state else 1))
        if found.isnan().any():
            raise FloatingPointError("not finite")
        return found

    recorder = profkit.numerics(model, every=1, folder=tmp_path / "run")
    with pytest.raises(FloatingPointError), recorder:
        train(model, optimizer, 4, run=fail)
    numerics = profkit.analyze(recorder.file).document.numerics[0]
    finding = codes(numerics)["nan-found"]
    assert (finding.params["name"], finding.params["step"]) == ("layers.0.linear", 1)
    assert (list(numerics.steps), numerics.step_count) == ([0, 1], 2)


def test_a_recording_without_steps_says_so(tmp_path):
    recorded(tmp_path, lambda: None, build()[0])
    text = profkit.analyze(tmp_path / "run").render("text")
    assert text.startswith("Numerics of Net: no step was looked at.")


def test_a_weight_that_begins_at_zero_has_no_ratio_yet(tmp_path):
    model, optimizer = build()
    model.head.bias.data.zero_()
    numerics = recorded(tmp_path, lambda: train(model, optimizer, 2), model)
    assert next(row.ratios[0] for row in numerics.updates if row.name == "head.bias") is None
    profkit.analyze(tmp_path / "run").save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "undefined → " in page
    assert "not finite" not in page


def test_a_clean_training_has_no_findings(tmp_path):
    model, optimizer = build()
    numerics = recorded(tmp_path, lambda: train(model, optimizer, 8), every=2)
    assert not numerics.findings
    assert not numerics.non_finite
    names = [row.name for row in numerics.tensors if row.tensor == "activation"]
    assert names[:3] == ["layers.0.linear", "layers.0.act", "layers.0"], "in the order of execution"
    assert names[-2:] == ["head", "Net"]
    assert {row.name for row in numerics.updates} == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_statistics_equal_those_of_numpy_in_float64(dtype):
    torch.manual_seed(3)
    of = getattr(torch, dtype)
    values = torch.randn(64, 100).double() * 10.0 ** torch.randint(-9, 3, (64, 100))
    tensor = values.to(of).clamp(-60000, 60000)
    tensor[0, :3] = torch.tensor([0.0, torch.finfo(of).tiny / 4, -torch.finfo(of).tiny / 8], dtype=of)
    found = read_statistics(measured(tensor).tolist())
    exact = tensor.double().numpy()
    magnitude = np.abs(exact[exact != 0])
    assert found.values == exact.size
    assert found.zeros == (exact == 0).sum() > 0
    assert found.below == (magnitude < torch.finfo(of).tiny).sum() > 0
    assert found.infinite == found.nan == 0
    assert found.norm == pytest.approx(np.linalg.norm(exact), rel=1e-5)
    assert found.largest == magnitude.max()
    assert found.smallest == magnitude.min()
    exponents = np.clip(np.floor(np.log2(magnitude)).astype(int), FIRST_EXPONENT, None) - FIRST_EXPONENT
    np.testing.assert_array_equal(found.exponents, np.bincount(exponents, minlength=256))


def test_values_that_are_not_finite_are_counted_and_seen_outside_of_the_sample():
    tensor = torch.ones(4, LARGEST_SAMPLE)
    tensor[0, 0], tensor[0, 4] = float("nan"), float("-inf")
    found = read_statistics(measured(tensor).tolist())
    assert (found.nan, found.infinite, found.values) == (1, 1, LARGEST_SAMPLE)
    tensor = torch.ones(4, LARGEST_SAMPLE)
    tensor[3, 1] = float("inf")
    found = read_statistics(measured(tensor).tolist())
    assert (found.infinite, found.largest) == (0, float("inf"))


def test_a_sample_is_a_view_of_evenly_chosen_values():
    tensor = torch.arange(3 * 500 * 200.0).reshape(3, 500, 200).transpose(0, 2)
    sample = sample_of(tensor)
    assert sample.numel() <= LARGEST_SAMPLE
    assert sample.data_ptr() == tensor.data_ptr()
    assert sample_of(torch.ones(10)).numel() == 10


def test_gradients_below_the_range_of_fp16_are_found(tmp_path):
    model, optimizer = build(torch.float16, torch.optim.SGD)
    numerics = recorded(tmp_path, lambda: train(model, optimizer, 3, scale=1e-5))
    finding = codes(numerics)["below-range"]
    assert finding.params["dtype"] == "fp16"
    assert finding.params["tensor"] in ("gradient", "weight_gradient")
    assert "fp16's normal range" in finding.message
    assert "GradScaler" in finding.message
    model, optimizer = build(torch.float16, torch.optim.SGD)
    assert "below-range" not in codes(recorded(tmp_path, lambda: train(model, optimizer, 3, scale=100.0)))


def test_gradients_that_are_all_zero_are_found_and_the_headline_counts_findings(tmp_path):
    model, optimizer = build(torch.float16, torch.optim.SGD)
    numerics = recorded(tmp_path, lambda: train(model, optimizer, 3, scale=1e-12))
    finding = codes(numerics)["gradients-zero"]
    gradients = [row for row in numerics.tensors if row.tensor != "activation"]
    assert finding.count == sum(row.zeros == row.values for row in gradients) > 3
    assert f"as in {finding.count} of {len(gradients)} gradients" in finding.message
    assert "GradScaler" in finding.message
    report = profkit.analyze(tmp_path / "run")
    assert report.render("text").startswith("Numerics of Net: 1 finding; 3 of 3 steps were looked at.")
    assert report.render("text").index("head output's gr") < report.render("text").index("layers.0")
    model, optimizer = build()
    numerics = recorded(tmp_path / "clean", lambda: train(model, optimizer, 3))
    assert not numerics.findings
    text = profkit.analyze(tmp_path / "clean" / "run").render("text")
    assert text.startswith("Numerics of Net: nothing stands out; 3 of 3 steps were looked at.")


def test_a_first_step_without_gradients_is_no_finding(tmp_path):
    model, optimizer = build()
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.fill_(1.0)
    numerics = recorded(tmp_path, lambda: train(model, optimizer, 3))
    assert "gradients-zero" not in codes(numerics)


@pytest.mark.parametrize(
    ("scale", "text"), [(1.0, "1"), (65536.0, "65536"), (2.0**20, "2^20"), (1e6, "1e+06")]
)
def test_a_large_scale_is_told_as_a_power(scale, text):
    assert scale_text(scale) == text


def test_an_overflow_is_found_where_it_begins(tmp_path):
    model, optimizer = build(torch.float16, torch.optim.SGD, lr=1e-6)
    with torch.no_grad():
        model.layers[1].linear.weight.fill_(60000.0)
    numerics = recorded(tmp_path, lambda: train(model, optimizer, 2))
    first = codes(numerics)["inf-found"].params
    assert (first["name"], first["tensor"], first["step"]) == ("layers.1.linear", "activation", 0)
    assert "compute it in bf16 or fp32" in codes(numerics)["inf-found"].message


def test_a_nan_is_found_in_its_module_and_step(tmp_path):
    model, optimizer = build()
    linear, calls = model.layers[2].linear, [0]
    original = linear.forward

    def spoiled(inputs):
        calls[0] += 1
        return original(inputs) * (float("nan") if calls[0] == 6 else 1)

    linear.forward = spoiled
    numerics = recorded(tmp_path, lambda: train(model, optimizer, 8), model)
    finding = codes(numerics)["nan-found"]
    assert (finding.params["name"], finding.params["step"]) == ("layers.2.linear", 5)
    assert finding.params["clean_step"] == 4
    assert "`layers.2.linear`" in finding.message
    assert "step 5" in finding.message
    assert "every=1" not in finding.message, "it was recorded so"


def test_updates_that_bf16_weights_swallow_are_found(tmp_path):
    model, optimizer = build(torch.bfloat16, torch.optim.SGD, lr=1e-4)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    numerics = recorded(tmp_path, lambda: train(model, optimizer, 1), model)
    finding = codes(numerics)["updates-swallowed"]
    stayed = pushed = 0
    for old, parameter in zip(before, model.parameters(), strict=True):
        stayed += int(((old == parameter) & (parameter.grad != 0)).sum())
        pushed += int((parameter.grad != 0).sum())
    assert finding.params["share"] == pytest.approx(stayed / pushed)
    assert stayed / pushed > 0.5
    assert "bf16 weights swallow" in finding.message
    assert "master copy" in finding.message
    model, optimizer = build(torch.float32, torch.optim.SGD, lr=1e-4)
    numerics = recorded(tmp_path, lambda: train(model, optimizer, 1), model)
    assert "updates-swallowed" not in codes(numerics)


def test_the_ratio_of_an_update_is_that_of_float64(tmp_path):
    model, optimizer = build()
    before = model.head.weight.detach().double().clone()
    numerics = recorded(tmp_path, lambda: train(model, optimizer, 1), model)
    after = model.head.weight.detach().double()
    ratio = next(row.ratios[0] for row in numerics.updates if row.name == "head.weight")
    assert ratio == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-9)


def test_a_scaler_tells_its_scale_and_the_steps_that_it_skips(tmp_path):
    model, optimizer = build()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**118, growth_interval=2)
    expected = []

    def run():
        for _ in range(12):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(4, 16)).square().mean() * 1e4).backward()
            scaler.step(optimizer)
            scaler.update()
            expected.append(scaler.get_scale())

    numerics = recorded(tmp_path, run, every=100)
    scale = numerics.loss_scale
    history = [2.0**118, *expected]
    skipped = [at for at in range(12) if history[at + 1] < history[at]]
    assert skipped
    assert list(scale.skipped) == skipped
    assert (scale.steps[0], scale.scales[0], scale.scales[-1]) == (0, 2.0**118, expected[-1])
    assert list(scale.grown) == [at for at in range(12) if history[at + 1] > history[at]] != []
    assert numerics.step_count == 12, "a skipped step is a step"
    assert "skipped" in codes(numerics)["steps-skipped"].message
    assert "from 2^118 to " in codes(numerics)["steps-skipped"].message


def test_many_samples_are_thinned(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.recording.tensor_histories.MOST_SAMPLES", 16)
    model, optimizer = build()
    steps = 26
    numerics = recorded(tmp_path, lambda: train(model, optimizer, steps), model.head)
    assert numerics.every == 2
    assert list(numerics.steps) == list(range(0, steps, 2))
    row = numerics.tensors[0]
    assert list(row.steps) == list(numerics.steps)
    assert len(row.norms) == len(row.steps)


def test_autocast_and_evaluation_are_told_apart(tmp_path):
    model, optimizer = build()

    def run():
        for _ in range(2):
            with torch.no_grad():
                model(torch.full((4, 16), 1e30))
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.ones(4, 16)).float().mean()
            loss.backward()
            optimizer.step()

    numerics = recorded(tmp_path, run)
    dtypes = {row.name: row.dtype for row in numerics.tensors if row.tensor == "activation"}
    assert dtypes["layers.0.linear"] == "bf16"
    assert all(value < 1e6 for row in numerics.tensors for value in row.largest)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_compiled_model_survives(tmp_path):
    model, optimizer = build()
    compiled = torch.compile(model, backend="eager")
    expected = train(*build(), 4)
    found = []
    numerics = recorded(
        tmp_path, lambda: found.extend(train(model, optimizer, 4, run=compiled)), compiled, every=2
    )
    assert found == expected
    names = {row.name for row in numerics.tensors}
    assert {"Net", "head.weight"} <= names


def test_a_failure_is_one_warning_and_the_program_goes_on(tmp_path, monkeypatch):
    expected = train(*build(), 3)
    monkeypatch.setattr("profkit.recording.step_samples.measured", lambda tensor: 1 / 0)
    with (
        pytest.warns(RecordingWarning, match="numerics are incomplete") as told,
        profkit.numerics(every=1, folder=tmp_path / "run"),
    ):
        found = train(*build(), 3)
    assert found == expected
    assert len([each for each in told if each.category is RecordingWarning]) == 1
    assert nobody_listens()


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(RecordingWarning), profkit.numerics(every=1, folder=tmp_path / "file" / "run"):
        train(*build(), 2)


def test_a_number_of_steps_must_be_a_number_of_steps():
    with pytest.raises(profkit.RecordingError, match="every is 0"):
        profkit.numerics(every=0)


def test_the_file_is_read_as_what_it_is(tmp_path):
    model, optimizer = build()
    with profkit.numerics(model, every=1, folder=tmp_path / "run") as recorder:
        train(model, optimizer, 2)
    trace = read(recorder.file)
    assert trace.source.format == "numerics"
    assert trace.numerics.path == "numerics.json"
    assert profkit.analyze(tmp_path / "run").document.inputs[0].format == "numerics", (
        "a folder is searched for it"
    )
    for text, wrong in (
        (recorder.file.read_text()[:-40], "damaged"),
        (recorder.file.read_text().replace('"norms":[', '"norms":[1.0,', 1), "columns differ"),
    ):
        recorder.file.write_text(text)
        with pytest.raises(profkit.ReadError, match=wrong):
            read(recorder.file)


def compared(tmp_path, change, dtype=torch.float32):
    """A training against itself with something changed."""
    files = []
    for name, changed in (("before", False), ("after", True)):
        model, optimizer = build(dtype)
        if changed:
            change(model)
        with profkit.numerics(model, every=2, folder=tmp_path / name) as recorder:
            train(model, optimizer, 7)
        files.append(recorder.file)
    return profkit.compare(*files)


def test_two_recordings_of_one_training_are_the_same(tmp_path):
    found = compared(tmp_path, lambda model: None)
    assert not found.comparison.numerics.changes
    assert found.comparison.numerics.steps == 4
    assert "agree within rounding" in found.comparison.sentence


def test_the_first_module_and_step_where_two_recordings_part_are_named(tmp_path):
    def spoil(model):
        act, calls = model.layers[1].act, [0]
        original = act.forward

        def forward(x):
            calls[0] += 1
            return original(x) * (1.5 if calls[0] == 4 else 1)

        act.forward = forward

    found = compared(tmp_path, spoil)
    first = found.comparison.numerics.changes[0]
    # Step 3, which was spoiled, is not looked at; all that follows it has other weights.
    assert (first.step, first.name, first.tensor) == (4, "layers.0.linear", "activation")
    exact = compared(tmp_path, lambda model: model.layers[1].linear.weight.data.mul_(1.001))
    first = exact.comparison.numerics.changes[0]
    assert (first.step, first.name, first.tensor) == (0, "layers.1.linear", "activation")
    assert "diverge in step 0 at the output of `layers.1.linear`" in exact.comparison.sentence
    assert "layers.1.linear output" in str(exact)
    assert first.before != first.after


def test_recordings_that_part_in_the_backward_pass_only_name_where(tmp_path):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 1.5

    def spoil(model):
        forward = model.layers[1].linear.forward
        model.layers[1].linear.forward = lambda x: forward(Scaled.apply(x))

    first = compared(tmp_path, spoil).comparison.numerics.changes[0]
    assert (first.step, first.name, first.tensor) == (0, "layers.0", "gradient")


def test_a_module_that_one_recording_has_alone_is_told(tmp_path):
    def insert(model):
        model.layers[1].act = torch.nn.Sequential(model.layers[1].act, torch.nn.Linear(16, 16))

    found = compared(tmp_path, insert).comparison
    assert found.numerics.only_in_one[0] == "layers.1.act.0"
    assert (found.numerics.changes[0].name, found.numerics.changes[0].tensor) == (
        "layers.1.act",
        "activation",
    )
    assert "`layers.1.act.0` and 1 more are in one of them alone." in found.sentence
    same = compared(tmp_path / "same", lambda model: None).comparison
    assert not same.numerics.only_in_one
    assert "alone" not in same.sentence


def test_an_unedited_script_is_recorded(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(5):\n"
        "    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()\n"
    )
    line = [
        "record",
        "numerics",
        "--every",
        "2",
        "-o",
        str(tmp_path / "run"),
        "--",
        sys.executable,
        str(script),
    ]
    subprocess.run([sys.executable, "-m", "profkit", *line], check=True, timeout=300)
    numerics = profkit.analyze(tmp_path / "run").document.numerics[0]
    assert (numerics.model, list(numerics.steps), numerics.step_count) == ("Linear", [0, 2, 4], 5)


def test_a_python_without_the_packages_of_profkit_is_told_what_is_missing(tmp_path):
    (tmp_path / "train.py").write_text("print('trained')\n")
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['msgspec'] = None\n")
    ended = subprocess.run(
        [sys.executable, "-m", "profkit.recording.run_numerics", '{"folder": "runs", "every": 1}', "train.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(profkit.__file__).parents[1])])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ended.returncode == 1
    assert f"{sys.executable} -m pip install msgspec" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not ended.stdout
