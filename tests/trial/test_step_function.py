"""A step function of this process: all sides start alike, and nothing of a trial stays."""

import copy
from html import escape

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

import profkit  # noqa: E402
from profkit.errors import RecordingError  # noqa: E402
from profkit.trial.running import Failed  # noqa: E402
from profkit.trial.step_function import StepFunction  # noqa: E402

pytestmark = pytest.mark.torch


class Notebook:
    """What the cells above have made."""

    def __init__(self):
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 4)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.losses = []

    def step(self):
        images = torch.randn(4, 1, 8, 8)
        loss = torch.nn.functional.cross_entropy(self.model(images), torch.arange(4))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def state(self):
        return copy.deepcopy(
            (
                self.model.state_dict(),
                self.optimizer.state_dict(),
                torch.get_rng_state(),
                [p.grad for p in self.model.parameters()],
            )
        )


@pytest.fixture
def notebook():
    made = Notebook()
    made.step()
    return made


@pytest.fixture
def run(notebook):
    program = StepFunction(notebook.step, warmup=3)

    def side(*changes, seed_shift=0):
        made = program.running(changes, seed_shift, None)
        made.warm_up(10.0, float("inf"))
        return made

    return side


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize(
    "change", ["fused-optimizer", "foreach-optimizer", "channels-last", "bf16", "garbage-collection", "tf32"]
)
def test_after_a_turn_all_is_as_it_was(notebook, run, change):
    before = notebook.state()
    side = run(change)
    side.turn(2)
    assert same(before, notebook.state())
    assert not torch.nn.modules.module._global_forward_hooks
    notebook.step()
    assert not same(before, notebook.state())


def test_sides_take_turns_and_each_goes_on_from_its_own_state(run):
    one, other = run(), run()
    one.turn(2)
    other.turn(3)
    one.turn(2)
    shorter, longer = sorted((one.losses, other.losses), key=len)
    assert longer[: len(shorter)] == shorter
    assert one.losses != run(seed_shift=1).losses[: len(one.losses)]


@pytest.mark.parametrize("change", ["fused-optimizer", "foreach-optimizer", "channels-last", "bf16"])
def test_a_change_is_there_in_every_turn(run, change):
    plain, side = run(), run(change)
    plain.turn(2)
    block = side.turn(2)
    assert block.applied[change] > 0
    assert side.losses == pytest.approx(plain.losses, rel=0.1)


def test_an_optimizer_that_was_made_before_gets_the_keyword(notebook):
    seen = []

    def step():
        notebook.step()
        seen.append(notebook.optimizer.param_groups[0]["fused"])

    side = StepFunction(step, 2).running(["fused-optimizer"], 0, None)
    side.warm_up(10.0, float("inf"))
    assert all(seen)
    assert not notebook.optimizer.param_groups[0]["fused"]


def test_an_error_of_the_step_is_told_and_leaves_no_trace(notebook):
    before = notebook.state()

    def step():
        notebook.step()
        raise ValueError("my own mistake")

    with pytest.raises(Failed) as failure:
        StepFunction(step).running([], 0, None).warm_up(10.0, float("inf"))
    assert failure.value.why == "ValueError: my own mistake"
    assert same(before, notebook.state())


@pytest.fixture
def one_thread():
    """More would wait for cores that others have."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_notebook_keeps_what_helps_and_is_as_before(notebook, tmp_path):
    layers = [torch.nn.Linear(16, 16) for _ in range(60)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step():
        loss = torch.nn.functional.cross_entropy(model(torch.ones(8, 16)), torch.zeros(8, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    told = []
    names = ["fused-optimizer", "set-to-none", "threads", "loader-workers"]
    tried = profkit.try_(step, budget="60s", only=names, keep_going=True, compare=tmp_path, tell=told.append)
    final, rows = tried.document.final, {row.change: row for row in tried.document.trials}
    assert final.changes == ["fused-optimizer"], str(tried)
    assert final.speedup.low > 1
    assert rows["threads"].why == "the process runs already"
    assert rows["loader-workers"].why == "no DataLoader runs"
    assert tried.document.loss.unchanged
    assert tried.comparison.step.before_ns > 0
    assert not optimizer.state
    assert escape(tried.document.sentence) in tried._repr_html_()
    assert any("fused-optimizer: starting" in line for line in told)


def test_an_unknown_change_is_refused_before_the_step_runs(notebook):
    steps = len(notebook.losses)
    with pytest.raises(RecordingError, match="is no change"):
        profkit.try_(notebook.step, only=["faster"])
    assert len(notebook.losses) == steps
