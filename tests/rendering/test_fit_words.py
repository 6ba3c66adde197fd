"""Every sentence of ``profkit fit``, with what it is told of."""

import pytest

from profkit.model.report_fit import Fit, FitChoice, FitNote, FitNow, FitThen
from profkit.model.rows import Interval
from profkit.rendering.sentences.fit import (
    _NOTES,
    change_label,
    changes_text,
    cheapest_sentence,
    fit_note,
    fits_sentence,
)
from profkit.report.fit_rows import _ASKED
from profkit.simulation.fit_changes import _UNSURE, FitChanges

GIB = 2**30
UNKNOWN = "1.00 GiB were allocated before the history, for an unknown purpose. If they are "
SAID = {
    "history-incomplete": "The history has gaps: some blocks may be missing.",
    "private-pools": (
        "1.00 GiB are reserved in private pools of CUDA graphs or MemPool. The replay puts their blocks into the common "
        "pools, so that reserved memory may be off."
    ),
    "scores-unknown": (
        "Attention's scores grow with the square of the sequence. Without a trace of the same steps, they cannot be told "
        "from other blocks."
    ),
    "gives-back": (
        "The allocator would reserve more if it could. With so little, it returns free segments to CUDA and asks for "
        "others; the step time leaves this out."
    ),
    "bf16-already": "The recorded step already uses 16 bits by autocast: bf16 changes none of its blocks.",
    "some-layers": "Of the 12 layers of a step, in the order of the forward pass: 1, 2.",
    "ran-out": (
        "The recording ends where memory ran out. The 1.00 GiB that were asked for count, but what the step would have "
        "taken after that is not known."
    ),
    "grows": (
        "Memory grows by 1.00 GiB per step: these figures are for the recorded steps, and later ones need more."
    ),
    "other-allocator": (
        "Block sizes differ from those of PyTorch's allocator, but reserved memory is estimated for PyTorch's allocator."
    ),
    "scores-stored": (
        "Several queries share a key, in fp32: with enable_gqa, as transformers asks for, PyTorch has no fused kernel for "
        "that and stores the scores. Use bf16, or repeat the keys before scaled_dot_product_attention."
    ),
    "offload-roughly-timed": (
        "Copies to and from the host, and its update of the weights, are in the step's time. The recording does not show "
        "how fast the host is: the interval reaches from all cores of a server to one."
    ),
    "ranks-not-timed": "The time leaves out what the ranks exchange, and what sharing the update saves.",
    "unshared-blocks": f"{UNKNOWN}weights without a gradient, the ranks share them too: the lower ends hold that.",
    "unexplained-blocks": f"{UNKNOWN}inputs, they change as well: the intervals hold that.",
}


def test_every_note_is_here():
    assert set(SAID) == set(_NOTES)


@pytest.mark.parametrize("code", SAID)
def test_a_note_says_what_it_is_given(code):
    assert fit_note(FitNote(code=code, params={"bytes": GIB, "of": 12, "layers": "1, 2"})) == SAID[code]


def around(size):
    return Interval(low=size, likely=size, high=size)


def answer(**columns):
    plain = {
        "before": FitNow(peak_bytes=GIB, reserved_bytes=GIB, step_ns=None),
        "changes": [], "settings": {}, "memory_bytes": GIB, "outside_bytes": 0, "fits": True, "by_category": [], "notes": [],
        "after": FitThen(peak_bytes=around(GIB), reserved_bytes=around(GIB), step_ns=None),
    }  # fmt: skip
    return Fit(**(plain | columns))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "It fits into 1.00 GiB."),
        ({"outside_bytes": GIB}, "It fits into 1.00 GiB, with 1.00 GiB beside the allocator."),
        ({"fits": False}, "It does not fit into 1.00 GiB."),
        ({"fits": None}, "It may or may not fit into 1.00 GiB: the limit lies within the estimate."),
        (
            {"fits": None, "notes": [FitNote(code="grows", params={"bytes": 1})]},
            "As far as the recording goes, it may fit into 1.00 GiB.",
        ),
        (
            {"fits": None, "memory_bytes": None},
            "The GPU's memory size is unknown: pass it with --memory.",
        ),
    ],
)
def test_whether_it_fits(columns, said):
    assert fits_sentence(answer(**columns)) == said


@pytest.mark.parametrize(
    ("changes", "settings", "said"),
    [
        ([], {}, "The recorded step, unchanged: as recorded and as replayed."),
        (["bf16", "batch"], {"batch": 2.0}, "With bf16, batch x2: before and after."),
        (["recompute"], {"recompute": "6"}, "With recompute of 6 layers: before and after."),
        (["recompute"], {"recompute": "all"}, "With recompute all: before and after."),
        (
            ["shard"],
            {"shard": "zero3", "ranks": 8.0},
            "With shard zero3 over 8 ranks: before and after.",
        ),
    ],
)
def test_what_is_changed(changes, settings, said):
    assert changes_text(answer(changes=changes, settings=settings)) == said


def test_what_else_makes_it_fit():
    timed = FitThen(peak_bytes=around(GIB), reserved_bytes=around(GIB), step_ns=around(5e6))
    choice = FitChoice(changes=["recompute"], settings={"recompute": "3"}, after=timed)
    said = "It fits with recompute of 3 layers: 1.00 GiB are then reserved"
    short = {"fits": False, "cheapest": choice}
    assert cheapest_sentence(answer(**short)) == f"{said}, and a step takes 5.00 ms."
    untimed = FitChoice(changes=choice.changes, settings=choice.settings, after=answer().after)
    assert cheapest_sentence(answer(fits=None, cheapest=untimed)) == f"{said}."
    nothing = "No combination of the changes that profkit knows is certain to make it fit."
    assert cheapest_sentence(answer(fits=False)) == nothing
    grows = [FitNote(code="grows", params={"bytes": 1})]
    assert [cheapest_sentence(answer(fits=None, notes=notes)) for notes in (grows, [])] == ["", nothing]
    assert cheapest_sentence(answer()) == ""


def test_each_change_of_a_report_has_a_name_of_its_own():
    plain = FitChanges()
    asked = [
        next(name for name in FitChanges.__dataclass_fields__ if getattr(each, name) != getattr(plain, name))
        for each in _ASKED
    ]
    labels = {change_label(name.replace("_", "-")) for name in asked}
    assert len(labels) == len(_ASKED)
    assert not labels & set(_UNSURE)
