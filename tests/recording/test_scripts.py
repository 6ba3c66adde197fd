"""Unedited programs: their phases and steps are heard from torch."""

import gzip
import json
import os
import signal
from collections import Counter

import pytest

from profkit.recording import program_events
from profkit.recording.recorder import Recorder
from profkit.recording.run_script import recorded

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")
F = torch.nn.functional


@pytest.fixture(autouse=True)
def nothing_left():
    signals = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), signal.signal
    functional = F.cross_entropy
    yield
    assert not any(program_events._listeners.values())
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), signal.signal) == signals
    assert F.cross_entropy is functional


def record(folder, program, **options):
    """The phases of a recorded program, counted by their paths, its steps, and the recorder."""
    with recorded({"folder": str(folder), "wait": 1, "warmup": 1, "steps": 2, **options}) as recorder:
        program()
    counts, steps = Counter(), 0
    for path in recorder.files:
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        marks = [
            (e["ts"], e["ts"] + e["dur"], e["name"], e["tid"])
            for e in events
            if e.get("cat") == "user_annotation"
        ]
        steps += sum(name.startswith("ProfilerStep#") for _, _, name, _ in marks)
        phases = sorted((m for m in marks if m[2].startswith("profkit::")), key=lambda m: (m[0], -m[1]))
        for start, end, name, thread in phases:
            above = [
                m[2] for m in phases if m[0] <= start and end <= m[1] and m[3] == thread and m[2] != name
            ]
            counts["/".join(n.removeprefix("profkit::") for n in [*above, name])] += 1
    return counts, steps, recorder


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def data(batches):
    rows = torch.utils.data.TensorDataset(torch.randn(batches * 4, 8), torch.randint(0, 3, (batches * 4,)))
    return torch.utils.data.DataLoader(rows, batch_size=4)


def supervised(batches=8, accumulate=1, loss=lambda *each: F.cross_entropy(*each), losses=None):
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    for index, (x, y) in enumerate(data(batches)):
        value = loss(model(x), y)
        value.backward()
        if (index + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        if losses is not None:
            losses.append(value.item())


PARTS = {"data": 2, "forward": 2, "loss": 2, "backward": 2, "optimizer": 2}


@pytest.mark.parametrize("loss", [lambda *each: F.cross_entropy(*each), torch.nn.CrossEntropyLoss()])
def test_a_plain_loop_has_its_five_phases(tmp_path, loss):
    counts, steps, recorder = record(tmp_path, lambda: supervised(loss=loss))
    assert counts == PARTS
    assert steps == 2
    assert recorder.problems == []


def test_it_trains_the_same(tmp_path):
    plain, seen = [], []
    supervised(losses=plain)
    record(tmp_path, lambda: supervised(losses=seen))
    assert seen == plain


def test_modules_are_phases_as_deep_as_asked(tmp_path):
    counts, _, _ = record(tmp_path, supervised, modules=1)
    assert counts == PARTS | {"forward/0": 2, "forward/1": 2, "forward/2": 2}


def test_a_step_of_accumulated_gradients_is_the_optimizers(tmp_path):
    counts, steps, _ = record(tmp_path, lambda: supervised(batches=16, accumulate=3))
    assert steps == 2
    assert counts["optimizer"] == 2
    assert counts["forward"] == counts["backward"] == 6


def test_phases_that_the_program_marks_itself_are_left_to_it(tmp_path):
    import profkit

    def program():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, _ in data(8):
            with profkit.phase("forward"):
                loss = model(x).square().mean()
            loss.backward()
            optimizer.step()

    counts, _, _ = record(tmp_path, program)
    assert counts == {"data": 2, "forward": 2, "backward": 2, "optimizer": 2}


def test_two_optimizers_in_turns_make_one_step(tmp_path):
    def gan():
        generator, critic = net(), torch.nn.Linear(3, 1)
        ours, theirs = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
        for x, _ in data(8):
            theirs.zero_grad()
            critic(generator(x).detach()).mean().backward()
            theirs.step()
            ours.zero_grad()
            critic(generator(x)).mean().backward()
            ours.step()

    counts, steps, _ = record(tmp_path, gan)
    assert steps == 2
    assert counts["optimizer"] == 4
    assert counts["forward"] == 8


def test_an_optimizer_that_goes_quiet_hands_the_step_on(tmp_path):
    def program():
        warm = torch.nn.Parameter(torch.ones(3))
        first = torch.optim.SGD([warm], lr=0.1)
        warm.sum().backward()
        first.step()
        supervised(batches=12)

    _, steps, recorder = record(tmp_path, program)
    assert steps == 2
    assert recorder.problems == []


def test_a_closure_is_no_part_of_the_optimizer(tmp_path):
    def program():
        model, (x, y) = net(), next(iter(data(1)))
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        for _ in range(6):
            optimizer.step(closure)

    counts, steps, _ = record(tmp_path, program)
    assert steps == 2
    assert counts["forward"] == counts["backward"] == counts["loss"] >= 4
    assert not [path for path in counts if path.startswith("optimizer/")]


def test_weights_that_are_updated_by_hand_count_by_backward(tmp_path):
    def program():
        weight = torch.ones(8, requires_grad=True)
        for _ in range(10):
            (weight * 2).sum().backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
                weight.grad = None

    counts, steps, recorder = record(tmp_path, program)
    assert steps == 2
    assert counts == {"backward": 2}
    assert recorder.problems == []


@pytest.mark.parametrize(("by", "forwards"), [("loader", 2), ("module", 2)])
def test_inference_counts_by_what_is_asked(tmp_path, by, forwards):
    @torch.no_grad()
    def program():
        model = net().eval()
        for x, _ in data(8):
            model(x)

    counts, steps, _ = record(tmp_path, program, step_by=by)
    assert steps == 2
    assert counts["forward"] == forwards


def test_several_make_one_step(tmp_path):
    counts, steps, _ = record(tmp_path, lambda: supervised(batches=16), step_every=3)
    assert steps == 2
    assert counts["optimizer"] == 6


def test_evaluation_is_named_and_recomputed_activations_are_backwards(tmp_path):
    from torch.utils.checkpoint import checkpoint

    def program():
        model, x = net(), torch.ones(2, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(8):
            model.train()
            checkpoint(model, x, use_reentrant=False).sum().backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                model(x)

    counts, _, _ = record(tmp_path, program)
    assert counts == {"forward": 2, "backward": 2, "optimizer": 2, "evaluation": 2}


def test_the_program_may_be_ended_after_the_recording(tmp_path):
    done = []

    def train():
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        for x, _ in data(50):
            model(x).sum().backward()
            optimizer.step()
            done.append(1)

    with pytest.raises(SystemExit) as ended:
        record(tmp_path, train, stop_after=True)
    assert ended.value.code == 0
    assert len(done) == 4, "the loop's own end of the last step"
    assert (tmp_path / "trace.json.gz").exists()
    assert json.loads((tmp_path / "run.json").read_text())["state"] == "done"


def test_ranks_that_do_not_record_end_with_those_that_do(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with (
        pytest.raises(SystemExit),
        recorded(
            {
                "folder": str(tmp_path / "run"),
                "ranks": [0],
                "wait": 1,
                "warmup": 1,
                "steps": 1,
                "stop_after": True,
            }
        ),
    ):
        supervised(batches=9)
    assert not (tmp_path / "run").exists()


def test_without_steps_the_reason_is_told(tmp_path):
    with pytest.warns(UserWarning, match="No optimizer ran: --whole"):
        record(tmp_path / "a", lambda: net()(torch.ones(1, 8)))

    def by_hand_with_an_idle_optimizer():
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            model(torch.ones(1, 8)).sum().backward()
        return optimizer

    with pytest.warns(UserWarning, match="No optimizer of torch made a step: --step-by backward"):
        record(tmp_path / "b", by_hand_with_an_idle_optimizer)


def asked_again_while_writing(monkeypatch):
    """Ctrl-C for a second time, in the middle of writing what was recorded."""
    finish = Recorder._finish

    def interrupted(recorder, error, cause):
        os.kill(os.getpid(), signal.SIGINT)
        finish(recorder, error, cause)

    monkeypatch.setattr(Recorder, "_finish", interrupted)


def test_a_second_ctrl_c_does_not_cut_the_writing_short(tmp_path, monkeypatch):
    asked_again_while_writing(monkeypatch)
    told = []

    def program():
        supervised()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        told.append("once")

    _, steps, recorder = record(tmp_path, program, steps=100)
    assert told == ["once"], "the program hears it when all is written"
    assert steps > 0
    assert json.loads((recorder.folder / "run.json").read_text())["state"] == "ended by SIGINT"


def test_ctrl_c_while_a_recording_ends_by_itself_waits_for_it(tmp_path, monkeypatch):
    asked_again_while_writing(monkeypatch)
    _, steps, _ = record(tmp_path, supervised, steps=100)
    assert steps > 0
