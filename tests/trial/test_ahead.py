"""Programs that are started at once."""

import pytest

from profkit.trial.ahead import Ahead, at_once, likely_chains
from profkit.trial.messages import Facts
from profkit.trial.running import Failed

GIB = 1 << 30


class Stand:
    """A side that notes what is done with it."""

    def __init__(self, names, told):
        self.names, self.told = names, told

    def launch(self):
        self.told.append(("launch", self.names))

    def start(self):
        self.told.append(("start", self.names))
        if "fails" in self.names:
            raise Failed("crashed", "planted")

    def pause(self, standing):
        self.told.append(("stand" if standing else "go", self.names))

    def hurry(self, patience_s, until):
        self.told.append(("hurry", self.names))

    def stop(self):
        self.told.append(("stop", self.names))


@pytest.fixture
def told():
    return []


@pytest.fixture
def ahead(told):
    made = Ahead(lambda names: Stand(tuple(names), told))
    made.most = 3
    return made


def test_all_are_launched_before_the_first_is_waited_for(ahead, told):
    ahead.start([("a",), ("b",)])
    assert told == [("launch", ("a",)), ("launch", ("b",)), ("start", ("a",)), ("start", ("b",))]


def test_no_more_are_started_than_the_machine_holds(ahead, told):
    ahead.start([("a",), ("b",), ("c",)], others=[Stand("seed", told)])
    assert ("launch", ("b",)) in told
    assert ("launch", ("c",)) not in told


def test_one_that_is_there_is_taken_and_not_made_again(ahead, told):
    ahead.start([("a",), ("b",)])
    assert ahead.take(["b"]).names == ("b",)
    ahead.start([("a",), ("c",)])
    assert ("launch", ("c",)) not in told


def test_one_that_fails_is_stopped_and_the_others_stay(ahead, told):
    ahead.start([("fails",), ("b",)])
    assert ("stop", ("fails",)) in told
    assert ("start", ("b",)) in told


def test_what_is_no_more_wanted_makes_room(ahead, told):
    ahead.start([("a",), ("a", "b"), ("b",)])
    ahead.take(["a"])
    ahead.start([("b", "c"), ("b",), ("c",)])
    assert ("stop", ("a", "b")) in told
    assert told.count(("launch", ("b",))) == 1
    assert told[-1] == ("start", ("c",))


def test_what_is_launched_is_not_waited_for_and_can_stand_still(ahead, told):
    assert ahead.launch([("a",), ("b",)]) == [("a",), ("b",)]
    with ahead.standing_still():
        told.append("a turn")
    assert told[2:] == [("stand", ("a",)), ("stand", ("b",)), "a turn", ("go", ("a",)), ("go", ("b",))]
    ahead.wait([("b",), ("c",)])
    assert told[-1] == ("start", ("b",))


def test_a_guess_is_taken_for_what_it_stands_for_and_others_are_stopped(ahead, told):
    ahead.launch([("a", "b"), ("c",)])
    ahead.adopt(
        [("a",), ("d",)], stands_for=lambda guess, names: set(names) <= set(guess), patience_s=len, until=len
    )
    assert ahead.has(["a"])
    assert not ahead.has(["d"])
    assert told[-2:] == [("hurry", ("a", "b")), ("stop", ("c",))]


def test_the_likeliest_chains_come_first_and_one_of_a_kind():
    assert likely_chains(["tf32"], ["bf16", "compile"]) == [
        ("tf32", "bf16"),
        ("tf32", "bf16", "compile"),
        ("tf32", "compile"),
    ]
    assert likely_chains([], ["compile", "reduce-overhead"]) == [("compile",), ("reduce-overhead",)]


@pytest.mark.parametrize(
    ("facts", "peak_gib", "count"),
    [
        pytest.param(Facts(cpus=2, host_free_bytes=64 * GIB), None, 2, id="two cores"),
        pytest.param(Facts(cpus=8, host_free_bytes=100 * GIB), None, 8, id="many cores"),
        pytest.param(Facts(cpus=16, host_free_bytes=13 * GIB), None, 2, id="little memory of the host"),
        pytest.param(
            Facts(cpus=16, host_free_bytes=100 * GIB, gpu_free_bytes=70 * GIB), 20, 2, id="a large model"
        ),
        pytest.param(
            Facts(cpus=16, host_free_bytes=100 * GIB, gpu_free_bytes=10 * GIB), 70, 1, id="a full GPU"
        ),
    ],
)
def test_as_many_at_once_as_cores_and_memory_hold(facts, peak_gib, count):
    assert at_once(facts, None if peak_gib is None else peak_gib * GIB) == count
