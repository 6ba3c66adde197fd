"""What one rank of several holds, on one GPU; a loss in chunks; Adam with states of a byte.

The ranks are torch's fake process group: collectives return at once and move nothing, while FSDP, DDP and
ZeroRedundancyOptimizer allocate what they allocate among real ranks. Rank 0 has the largest parameter. The values are
nonsense, and so is the time; the memory is not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

_BLOCK = 256
_SMALL = 4096
"""Elements: bitsandbytes keeps the states of smaller parameters in fp32."""
_PIECE = 1 << 20


def shard(model: nn.Module, layers: list[nn.Module], stage: str, ranks: int) -> nn.Module:
    """The model as the first of so many ranks has it.

    ``zero1`` is DistributedDataParallel (with `sharded_adam`), ``zero2`` is fully_shard of each layer that keeps gathered
    parameters until the backward pass, and ``zero3`` one that does not.
    """
    import torch.testing._internal.distributed.fake_pg as fake
    from torch import distributed
    from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=ranks)
    if stage == "zero1":
        reduced = nn.parallel.DistributedDataParallel(model, init_sync=False)
        reduced.register_comm_hook(None, noop_hook)  # what the fake group's own work hands back is nothing
        return reduced
    mesh = distributed.init_device_mesh(next(model.parameters()).device.type, (ranks,))
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=stage == "zero3")
    return fully_shard(model, mesh=mesh, reshard_after_forward=False)


def sharded_adam(parameters: list[nn.Parameter]) -> Any:
    """AdamW whose states are shared out among the ranks."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=1e-5)


class ChunkedLoss(nn.Module):
    """A causal language model of transformers whose logits are made and used up a chunk at a time.

    Chunks have as many elements as the hidden states, and gradients are made in the forward pass, as in Liger's fused
    linear cross entropy.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.tail = model.get_output_embeddings()
        model.forward = self.loss  # type: ignore[method-assign]  # FSDP gathers what the model's own call needs

    def forward(self, **inputs: Any) -> Any:
        return self.model(**inputs)

    def loss(self, input_ids: Any, labels: Any, **others: Any) -> Any:
        hidden = self.model.base_model(input_ids=input_ids, **others)[0]
        hidden, labels = hidden[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return _Chunked.apply(hidden, self.tail.weight, labels)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, hidden: Any, weight: Any, labels: Any) -> Any:
        pieces = math.ceil(weight.shape[0] / weight.shape[1])
        length = math.ceil(len(hidden) / pieces)
        of_hidden, of_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        loss = hidden.new_zeros((), dtype=torch.float32)
        for start in range(0, len(hidden), length):
            rows = slice(start, start + length)
            logits = hidden[rows] @ weight.t()
            wanted = labels[rows, None]
            logits -= logits.logsumexp(1, keepdim=True)
            loss -= logits.gather(1, wanted).sum() / len(hidden)
            logits.exp_().scatter_add_(1, wanted, -torch.ones_like(wanted, dtype=logits.dtype))
            logits /= len(hidden)
            torch.mm(logits, weight, out=of_hidden[rows])
            of_weight.addmm_(logits.t(), hidden[rows])
            del logits
        context.save_for_backward(of_hidden, of_weight)
        return loss

    @staticmethod
    def backward(context: Any, *above: Any) -> Any:
        of_hidden, of_weight = context.saved_tensors
        return of_hidden.mul_(above[0]), of_weight.mul_(above[0]), None


class Adam8bit:
    """Adam whose states have a byte an element and a scale for each block, as bitsandbytes keeps them.

    Its kernels need no temporaries: here a piece of a parameter is updated at a time. What it keeps is coarser than what
    they keep, so that it is good for nothing but its memory.
    """

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.states: dict[nn.Parameter, list[Any]] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        for each in self.parameters:
            each.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for each in self.parameters:
            if each.grad is None:
                continue
            if each not in self.states:
                self.states[each] = [self.empty(each) for _ in range(2)]
            for start in range(0, each.numel(), _PIECE):
                self.update(each, slice(start, min(start + _PIECE, each.numel())))

    def empty(self, of: Any) -> Any:
        if of.numel() < _SMALL:
            return torch.zeros_like(of)
        return torch.zeros_like(of, dtype=torch.uint8), of.new_zeros(math.ceil(of.numel() / _BLOCK))

    def update(self, parameter: Any, piece: slice) -> None:
        gradient = parameter.grad.flatten()[piece]
        mean, square = (self.load(state, piece) for state in self.states[parameter])
        mean.lerp_(gradient, 0.1)
        square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        parameter.view(-1)[piece] -= 1e-5 * mean / (square.sqrt() + 1e-8)
        for state, value in zip(self.states[parameter], (mean, square), strict=True):
            self.store(state, piece, value)

    def load(self, state: Any, piece: slice) -> Any:
        if not isinstance(state, tuple):
            return state.view(-1)[piece]
        codes, scales = state
        length = piece.stop - piece.start
        blocks = scales[piece.start // _BLOCK :][: math.ceil(length / _BLOCK)]
        return codes.view(-1)[piece].float() * blocks.repeat_interleave(_BLOCK)[:length] / 255

    def store(self, state: Any, piece: slice, value: Any) -> None:
        if not isinstance(state, tuple):
            return
        codes, scales = state
        padded = nn.functional.pad(value.abs(), (0, -len(value) % _BLOCK)).view(-1, _BLOCK)
        most = padded.amax(1)
        scales[piece.start // _BLOCK :][: len(most)] = most
        share = value.abs() / most.clamp_min(1e-30).repeat_interleave(_BLOCK)[: len(value)]
        codes.view(-1)[piece] = (share * 255).to(torch.uint8)
