"""Programs that do not sit still: what a trial sees of them, and that it leaves them alone."""

import math
import socket
import sys
import threading

import pytest
from click.testing import CliRunner

from profkit.cli import main
from profkit.trial.changes import change_named
from profkit.trial.running import Program, Running
from profkit.trial.turns import Side
from tests.packaging.conftest import ROOT

pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

STEPS = """
import torch
torch.manual_seed(0)
x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
def loss_of(net):
    return torch.nn.functional.cross_entropy(net(x), y)
"""

GAN = """
from torch import nn
maker, judge = nn.Linear(16, 16), nn.Linear(16, 1)
makes, judges = (torch.optim.Adam(net.parameters(), lr=1e-4) for net in (maker, judge))
truth = nn.BCEWithLogitsLoss()
while True:
    made = maker(torch.randn(8, 16))
    (truth(judge(x), torch.ones(8, 1)) + truth(judge(made.detach()), torch.zeros(8, 1))).backward()
    judges.step(), judges.zero_grad()
    truth(judge(made), torch.ones(8, 1)).backward()
    makes.step(), makes.zero_grad()
"""

BY_HAND = """
net = torch.nn.Linear(16, 4)
while True:
    net.zero_grad()
    loss_of(net).backward()
    with torch.no_grad():
        for weight in net.parameters():
            weight -= 1e-3 * weight.grad
"""

OWN_SWITCHES = """
import gc
gc.disable()
torch.set_float32_matmul_precision("high")
net = torch.compile(torch.nn.Linear(16, 4), backend="eager")
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
while True:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_of(net)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

OWN_ARGUMENTS = """
import argparse
def train(options):
    net = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=options.budget)
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss_of(net).backward()
        optimizer.step()
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    command = parser.add_subparsers(required=True).add_parser("fit")
    command.add_argument("--budget", type=float, required=True)
    command.add_argument("--only", required=True)
    command.add_argument("steps", type=int)
    train(parser.parse_args())
"""

RANKS = """
import torch.distributed as ranks
ranks.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.Adam(net.parameters())
while True:
    optimizer.zero_grad()
    loss_of(net).backward()
    optimizer.step()
"""

REPORTING = """
import socket
net = torch.nn.Linear(16, 4)
optimizer = torch.optim.Adam(net.parameters())
while True:
    optimizer.zero_grad()
    loss_of(net).backward()
    optimizer.step()
    with socket.create_connection(("127.0.0.1", PORT)) as site:
        site.sendall(b"a step")
"""


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Starts a script, and gives what its warm-up has told."""
    monkeypatch.chdir(tmp_path)
    running = []

    def start(source, *changes, command=(sys.executable, "train.py")):
        (tmp_path / "train.py").write_text(STEPS + source)
        environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        program = Program(tuple(command), 4, environment=environment)
        running.append(Running(program, changes))
        return running[-1], running[-1].warm_up(120.0, math.inf)

    yield start
    for each in running:
        each.close()


def test_several_models_and_optimizers_are_changed_and_make_one_step(started):
    running, first = started(GAN, "fused-optimizer")
    assert first.facts.modules == 2
    assert first.applied == {"fused-optimizer": 2}
    assert len(running.turn(3).losses) == 2 * 4


def test_a_program_without_an_optimizer_steps_by_backward(started):
    running, first = started(BY_HAND)
    assert change_named("fused-optimizer").obstacle(first.facts) == "no optimizer of torch runs"
    assert len(running.turn(3).losses) == 4


def test_what_a_program_sets_itself_is_already_so(started):
    _, first = started(OWN_SWITCHES)
    names = ("bf16", "fused-optimizer", "garbage-collection", "set-to-none", "compile")
    assert {change_named(name).obstacle(first.facts) for name in names} == {"already so"}
    assert first.facts.tf32


def test_arguments_of_the_program_are_its_own_and_few_steps_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "train.py").write_text(STEPS + OWN_ARGUMENTS)
    program = ["--", sys.executable, "train.py", "fit", "--budget", "0.1", "--only", "this", "2"]
    told = CliRunner().invoke(main, ["try", "--budget", "120s", "--only", "fused-optimizer", *program])
    assert told.exit_code == 1
    assert "the program ended by itself after fewer than 5 steps" in told.output
    assert "let the program run longer, or ask for fewer" in told.output


def test_fewer_steps_than_asked_are_made_in_shorter_turns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(STEPS + OWN_ARGUMENTS)
    command = (sys.executable, "train.py", "fit", "--budget", "0.1", "--only", "this", "12")
    side = Side(Program(command, 4, environment={"PYTHONPATH": str(ROOT)}))
    try:
        assert side.turn(20) > 0
    finally:
        side.stop()
    assert side.ended.why == "the program ended by itself after 4 steps"


def test_each_rank_of_torchrun_takes_part(started):
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")
    running, first = started(RANKS, "fused-optimizer", command=launcher)
    assert len(running._talks) == 2
    assert first.applied == {"fused-optimizer": 1}
    assert running.turn(2).ns > 0


def test_a_program_that_reports_over_the_network_is_left_alone(started):
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as site:

        def hear():
            while len(heard) < 4:
                with site.accept()[0] as connection:
                    heard.append(connection.recv(100))

        listener = threading.Thread(target=hear, daemon=True)
        listener.start()
        started(REPORTING.replace("PORT", str(site.getsockname()[1])))
    assert heard[:3] == [b"a step"] * 3
