"""What is said of whether a step fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from profkit.model.report_fit import Fit, FitChoice, FitNote
from profkit.units import bytes_text, duration_text

__all__ = ["change_label", "changes_text", "cheapest_sentence", "fit_note", "fits_sentence"]


_ALONE: Final = {
    "bf16": "bf16 by autocast",
    "fused-attention": "fused attention",
    "fused-loss": "fused loss, logits in chunks",
    "recompute": "all layers recomputed",
    "fused-optimizer": "fused optimizer",
    "optimizer": "8-bit Adam",
    "batch": "twice the batch",
}
"""What a report prices, each alone (`profkit.report.fit_rows`)."""


def change_label(change: str) -> str:
    """A change of a report's ``fit`` for people."""
    return _ALONE.get(change, change)


def changes_text(found: Fit) -> str:
    """What is changed: ``batch 2, optimizer sgd``."""
    if not found.changes:
        return "The recorded step, unchanged: as recorded and as replayed."
    return f"With {_names(found)}: before and after."


def cheapest_sentence(found: Fit) -> str:
    """What else makes it fit; empty where it fits, or no limit is known."""
    if found.fits or found.memory_bytes is None or any(note.code == "grows" for note in found.notes):
        return ""
    if found.cheapest is None:
        return "No combination of the changes that profkit knows is certain to make it fit."
    after = found.cheapest.after
    time = f", and a step takes {duration_text(after.step_ns.likely)}" if after.step_ns else ""
    reserved = bytes_text(after.reserved_bytes.likely)
    return f"It fits with {_names(found.cheapest)}: {reserved} are then reserved{time}."


def _names(found: Fit | FitChoice) -> str:
    ranks = {"shard": f" over {found.settings['ranks']:g} ranks"} if "ranks" in found.settings else {}
    return ", ".join(
        f"{name} {_value(found.settings[name])}{ranks.get(name, '')}" if name in found.settings else name
        for name in found.changes
    )


def _value(value: float | str) -> str:
    if not isinstance(value, str):
        return f"x{value:g}"
    return f"of {value} layers" if value.isdecimal() else value


def fits_sentence(found: Fit) -> str:
    """Whether it fits; empty where no limit is known."""
    if found.memory_bytes is None:
        return "The GPU's memory size is unknown: pass it with --memory."
    limit = bytes_text(found.memory_bytes)
    beside = f", with {bytes_text(found.outside_bytes)} beside the allocator" if found.outside_bytes else ""
    if found.fits is None and any(note.code in ("ran-out", "grows") for note in found.notes):
        return f"As far as the recording goes, it may fit into {limit}{beside}."
    if found.fits is None:
        return f"It may or may not fit into {limit}{beside}: the limit lies within the estimate."
    return f"It {'fits' if found.fits else 'does not fit'} into {limit}{beside}."


_NOTES: Final[dict[str, Callable[[FitNote], str]]] = {
    "history-incomplete": lambda _: "The history has gaps: some blocks may be missing.",
    "private-pools": lambda note: (
        f"{bytes_text(float(note.params['bytes']))} are reserved in private pools of CUDA graphs or MemPool. The replay puts "
        "their blocks into the common pools, so that reserved memory may be off."
    ),
    "scores-unknown": lambda _: (
        "Attention's scores grow with the square of the sequence. Without a trace of the same steps, they "
        "cannot be told from other blocks."
    ),
    "gives-back": lambda _: (
        "The allocator would reserve more if it could. With so little, it returns free segments to CUDA and asks for "
        "others; the step time leaves this out."
    ),
    "bf16-already": lambda _: (
        "The recorded step already uses 16 bits by autocast: bf16 changes none of its blocks."
    ),
    "some-layers": lambda note: (
        f"Of the {note.params['of']} layers of a step, in the order of the forward pass: {note.params['layers']}."
    ),
    "ran-out": lambda note: (
        f"The recording ends where memory ran out. The {bytes_text(float(note.params['bytes']))} that were asked for count, "
        "but what the step would have taken after that is not known."
    ),
    "grows": lambda note: (
        f"Memory grows by {bytes_text(float(note.params['bytes']))} per step: these figures are for the recorded steps, and later ones "
        "need more."
    ),
    "other-allocator": lambda _: (
        "Block sizes differ from those of PyTorch's allocator, but reserved memory is estimated for PyTorch's allocator."
    ),
    "scores-stored": lambda _: (
        "Several queries share a key, in fp32: with enable_gqa, as transformers asks for, PyTorch has no fused kernel for that "
        "and stores the scores. Use bf16, or repeat the keys before scaled_dot_product_attention."
    ),
    "offload-roughly-timed": lambda _: (
        "Copies to and from the host, and its update of the weights, are in the step's time. The recording does not show "
        "how fast the host is: the interval reaches from all cores of a server to one."
    ),
    "ranks-not-timed": lambda _: (
        "The time leaves out what the ranks exchange, and what sharing the update saves."
    ),
    "unshared-blocks": lambda note: (
        f"{bytes_text(float(note.params['bytes']))} were allocated before the history, for an unknown purpose. If they are "
        "weights without a gradient, the ranks share them too: the lower ends hold that."
    ),
    "unexplained-blocks": lambda note: (
        f"{bytes_text(float(note.params['bytes']))} were allocated before the history, for an unknown purpose. If they are "
        "inputs, they change as well: the intervals hold that."
    ),
}


def fit_note(note: FitNote) -> str:
    """The sentence of a note."""
    return _NOTES[note.code](note)
