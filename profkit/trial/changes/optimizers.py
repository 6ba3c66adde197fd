"""Optimizers that update all weights in a few launches."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from profkit.trial.changes.base import ALREADY, Change, Promise
from profkit.trial.changes.wrapping import replace, with_arguments
from profkit.trial.messages import Facts, OptimizerFacts

__all__ = ["DropGradients", "ForeachOptimizer", "FusedOptimizer"]


class _Keyword(Change):
    """A keyword of the optimizers' constructors."""

    keyword: ClassVar[str]
    other: ClassVar[str]
    promise = Promise.EQUAL
    kind_of = "optimizer"

    def obstacle(self, facts: Facts) -> str | None:
        """It takes an optimizer of torch that has the keyword."""
        if not facts.optimizers:
            return "no optimizer of torch runs"
        able = [each for each in facts.optimizers if self._fits(each)]
        if not able:
            return f"{facts.optimizers[0].name} has no {self.keyword} form"
        return ALREADY if all(self._is_set(each) for each in able) else None

    @abstractmethod
    def _fits(self, optimizer: OptimizerFacts) -> bool:
        """Whether an optimizer knows the keyword."""

    @abstractmethod
    def _is_set(self, optimizer: OptimizerFacts) -> bool:
        """Whether it runs that way already."""

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:
        """Set the keyword at construction."""
        import torch

        for kind in {each for each in vars(torch.optim).values() if inspect.isclass(each)}:
            own = vars(kind).get("__init__")
            if own is not None and self.keyword in inspect.signature(own).parameters:
                replace(undo, kind, "__init__", self._constructed)

    def arrived(self, optimizers: Sequence[Any]) -> None:
        """Set the keyword as a loaded state does, which moves what has to be on the device."""
        for optimizer in optimizers:
            if self.keyword in optimizer.defaults:
                state = optimizer.state_dict()
                for group in state["param_groups"]:
                    group.update(self._set(optimizer, {}))
                optimizer.load_state_dict(state)

    def _constructed(self, original: Any) -> Any:
        changed = with_arguments(original, self._set)

        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            try:
                changed(optimizer, *args, **kwargs)
            except (RuntimeError, ValueError) as error:
                vars(optimizer).clear()
                original(
                    optimizer, *args, **kwargs
                )  # what is wrong with the program's own arguments is its own
                self.applied -= 1
                self.refused = str(error)

        return __init__

    def _set(self, optimizer: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        self.applied += 1
        return {self.keyword: True, self.other: None}

    def patch(self, facts: Facts) -> list[str]:
        """In the constructor."""
        names = sorted({each.name for each in facts.optimizers if self._fits(each)})
        return [
            f"{name}(..., {self.keyword}=True)  # where the optimizer is made; same arguments"
            for name in names
        ]


class FusedOptimizer(_Keyword):
    """``fused=True``."""

    name = "fused-optimizer"
    keyword, other = "fused", "foreach"

    def _fits(self, optimizer: OptimizerFacts) -> bool:
        return optimizer.can_fuse

    def _is_set(self, optimizer: OptimizerFacts) -> bool:
        return optimizer.fused


class ForeachOptimizer(_Keyword):
    """``foreach=True``."""

    name = "foreach-optimizer"
    keyword, other = "foreach", "fused"

    def _fits(self, optimizer: OptimizerFacts) -> bool:
        return optimizer.can_foreach

    def _is_set(self, optimizer: OptimizerFacts) -> bool:
        return optimizer.foreach or optimizer.fused


class DropGradients(Change):
    """Gradients dropped instead of set to zero."""

    name = "set-to-none"
    promise = Promise.EQUAL

    def obstacle(self, facts: Facts) -> str | None:
        """It is torch's own way since 2.0."""
        return None if facts.zeroed else ALREADY

    def install(self, undo: ExitStack, beside: Sequence[Change]) -> None:
        """Whatever the program asks for."""
        import torch

        def around(original: Any) -> Any:
            def zero_grad(owner: Any, set_to_none: bool = True) -> Any:
                self.applied += not set_to_none
                return original(owner)

            return zero_grad

        for owner in (torch.optim.Optimizer, torch.nn.Module):
            replace(undo, owner, "zero_grad", around)

    def patch(self, facts: Facts) -> list[str]:
        """At each call."""
        return ["optimizer.zero_grad(set_to_none=True)  # in place of set_to_none=False"]
