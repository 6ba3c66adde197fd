"""Rules about the optimizer and gradients."""

from __future__ import annotations

from profkit.advice.rule import Case, Evidence, Rule, kernels_seen
from profkit.simulation.optimizers import optimizer_style, zeroing
from profkit.units import percent_text

__all__ = ["RULES"]


def _fused(case: Case) -> Evidence | None:
    facts = case.facts
    style = optimizer_style(facts)
    if style not in ("single", "foreach"):
        return None
    chosen = facts.optimizer & ~facts.zeroing
    how = "on one parameter at a time" if style == "single" else "in several passes over lists of parameters"
    return Evidence(
        f"The optimizer works {how}: {int(chosen.sum())} kernels per step, {percent_text(facts.share(chosen))} of the "
        "device's time. Fused, one kernel reads and writes each byte once.",
        kernels_seen(facts, chosen),
        ["fused-optimizer"],
        "high" if style == "single" else "medium",
    )


def _set_to_none(case: Case) -> Evidence | None:
    chosen = zeroing(case.facts)
    if not chosen.any():
        return None
    return Evidence(
        "Gradients are filled with zeros and then added to. With None, both kernels disappear: the first gradient is stored "
        "directly.",
        kernels_seen(case.facts, chosen),
        ["set-to-none"],
    )


RULES = (
    Rule(
        "fused-optimizer", "Use the fused optimizer", _fused,
        "Pass fused=True to Adam, AdamW, SGD or Adagrad. Where it is not supported, pass foreach=True.",
        "torch.optim.AdamW(model.parameters(), lr=lr, fused=True)",
        "Optimizer.step runs one or a few FusedAdam kernels.",
        ("All parameters must be floating-point tensors on the device, without sparse gradients.",),
        "https://docs.pytorch.org/docs/stable/optim.html",
        change="fused-optimizer",
    ),
    Rule(
        "set-to-none", "Drop gradients instead of zeroing them", _set_to_none,
        "Leave zero_grad at its default, set_to_none=True.",
        "optimizer.zero_grad()",
        "zero_grad has no fill kernels, and AccumulateGrad no add_.",
        ("Code that reads .grad before the first backward sees None.", "With gradients accumulated over micro-steps, only the first add disappears."),
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
        change="set-to-none",
    ),
)  # fmt: skip
