"""profkit.recording.instrument: phases in a loop that is left as it is, and no trace of them afterwards."""

import collections
import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

from profkit.recording.instrument import instrument  # noqa: E402


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.act = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        return x + self.second(self.act(self.first(x)))


def build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        collections.OrderedDict(a=Residual(), b=Residual(), head=torch.nn.Linear(8, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(6, 8))
    return model, optimizer, torch.utils.data.DataLoader(data, batch_size=2)


def train(model, optimizer, loader):
    losses = []
    for (batch,) in loader:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def recorded(run):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        run()
    marks = [e for e in profiler.events() if e.name.startswith("profkit::")]
    return collections.Counter(event.name.removeprefix("profkit::") for event in marks)


def test_the_whole_loop_is_marked_and_trains_the_same():
    expected = train(*build())
    parts = build()
    losses = []
    with instrument(*parts, depth=2):
        counts = recorded(lambda: losses.extend(train(*parts)))
    assert losses == expected
    assert counts["forward"] == counts["backward"] == counts["optimizer"] == counts["zero_grad"] == 3
    assert counts["data"] == 4, "three batches, and the fetch that finds the end"
    assert counts["a"] == counts["a.first"] == counts["head"] == 3
    assert counts["b.backward"] == counts["head.backward"] == counts["b.first.backward"] == 3
    assert "a.backward" not in counts, "its input needs no gradient"


def test_the_hooks_come_off_again():
    model, optimizer, loader = parts = build()
    backward = torch.autograd.backward
    hooks = instrument(*parts, depth=2)
    hooks.remove()
    assert recorded(lambda: train(*parts)) == {}
    assert torch.autograd.backward is backward
    assert "zero_grad" not in vars(optimizer)
    assert "_get_iterator" not in vars(loader)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_an_error_in_the_model_closes_its_phases():
    model, optimizer, loader = build()
    with instrument(model, optimizer, loader), torch.profiler.profile() as profiler:
        with pytest.raises(RuntimeError):
            model(torch.ones(2, 3))
        with torch.profiler.record_function("after"):
            pass
    events = {event.name: event for event in profiler.events()}
    assert events["profkit::forward"].time_range.end <= events["after"].time_range.start


def test_a_scheduler_made_afterwards_still_works():
    model, optimizer, loader = build()
    with instrument(model, optimizer, loader):
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        train(model, optimizer, loader)
        scheduler.step()


def test_any_iterable_can_be_the_loader():
    hooks = instrument(loader=[1, 2])
    assert recorded(lambda: list(hooks.loader)) == {"data": 3}
    assert list(hooks.loader) == [1, 2]
    assert len(hooks.loader) == 2


def test_nothing_is_attached_to_what_is_instrumented():
    model, optimizer, loader = parts = build()
    with instrument(*parts, depth=2):
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        pickle.dumps((optimizer, loader))
        assert recorded(lambda: copies[0](torch.randn(2, 8))) == {}
        assert recorded(lambda: model(torch.randn(2, 8)))["forward"] == 1
    for copied in copies:
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in copied.modules())


def test_nested_instruments_come_off_in_any_order():
    backward = torch.autograd.backward
    parts = build()
    first, second = instrument(*parts), instrument(*parts)
    first.remove()
    assert recorded(lambda: train(*parts))["optimizer"] == 3
    second.remove()
    second.remove()
    assert torch.autograd.backward is backward
    assert recorded(lambda: train(*parts)) == {}


def test_persistent_workers_keep_no_phase():
    data = torch.utils.data.TensorDataset(torch.randn(6, 8))
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=1, persistent_workers=True)
    with instrument(loader=loader):
        assert recorded(lambda: list(loader))["data"] == 4
    assert recorded(lambda: list(loader)) == {}


@pytest.mark.slow
def test_a_model_that_is_compiled_afterwards_has_no_graph_break():
    from torch._dynamo.testing import CompileCounter

    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.randn(2, 8)
    expected = model(x)
    counter = CompileCounter()
    with instrument(model, depth=1):
        compiled = torch.compile(model, backend=counter, fullgraph=True)
        assert torch.equal(compiled(x), expected)
        assert recorded(lambda: compiled(x)) == {"forward": 1}
        assert counter.frame_count == 1
    assert torch.equal(compiled(x), expected)


@pytest.mark.slow
def test_a_phase_object_that_is_used_again_compiles_in_one_graph():
    from torch._dynamo.testing import CompileCounter

    import profkit

    mark, layer, counter = profkit.phase("layer"), torch.nn.Linear(4, 4), CompileCounter()

    def forward(x):
        with mark:
            return layer(x)

    assert torch.equal(
        torch.compile(forward, backend=counter, fullgraph=True)(torch.ones(2, 4)), forward(torch.ones(2, 4))
    )
    assert counter.frame_count == 1
