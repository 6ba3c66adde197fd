"""Training steps of models from public libraries, with the changes whose memory `public_study.py` measures.

A *way* says how the step is run. ``CHANGES`` gives each change's way and the arguments of `profkit.fit` that ask for it;
several are joined with +. ``MODELS`` gives the maker, the way that is recorded, and the changes to measure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "advice"))
import public_models as public
from shards import Adam8bit, ChunkedLoss, shard, sharded_adam

DEVICE = public.DEVICE
public.DEVICE = "cpu"  # models are made without the GPU, which another process may be measuring on


@dataclass(frozen=True)
class Way:
    """How a step is run; ``batch`` and ``sequence`` are multiples of the recorded ones."""

    batch: float = 1.0
    sequence: float = 1.0
    amp: bool = False
    attention: str = "eager"
    optimizer: str = "adam"
    fused: bool = False
    checkpointed: bool = False
    accumulate: int = 1
    keeps_gradients: bool = False
    offloads: bool = False
    training: bool = True
    phased: bool = False
    chunks_loss: bool = False
    shard: str | None = None
    ranks: int = 1


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "base": ({}, {}),
    "bf16": ({"amp": True}, {"bf16": True}),
    "sdpa": ({"attention": "sdpa"}, {"fused_attention": True}),
    "checkpoint": ({"checkpointed": True}, {"recompute": "all"}),
    "sgd": ({"optimizer": "sgd"}, {"optimizer": "sgd"}),
    "adam": ({"optimizer": "adam"}, {"optimizer": "adam"}),
    "fused": ({"fused": True}, {"fused_optimizer": True}),
    "accumulate_2": ({"accumulate": 2}, {"accumulate": 2}),
    "keep": ({"keeps_gradients": True}, {"keep_gradients": True}),
    "offload": ({"offloads": True}, {"offload_optimizer": True}),
    "infer": ({"training": False}, {"inference": True}),
    "adam8bit": ({"optimizer": "adam8bit"}, {"optimizer": "adam8bit"}),
    "chunked_loss": ({"chunks_loss": True}, {"fused_loss": True}),
}
for _stage in ("zero1", "zero2", "zero3"):
    for _ranks in (2, 4, 8):
        _sharded = {"shard": _stage, "ranks": _ranks}
        CHANGES[f"{_stage}_of_{_ranks}"] = (_sharded, _sharded)
"""For the way, and for `profkit.fit`."""


def parts(change: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The way and the arguments of each part of a change such as ``bf16+batch_x2``."""
    for part in change.split("+"):
        name, _, factor = part.partition("_x")
        if factor:
            yield {name: float(factor)}, {name: float(factor)}
        else:
            yield CHANGES[part]


def changed(way: Way, change: str) -> Way:
    """The way after a change; the batch and the sequence are so many times those of the way."""
    for fields, _ in parts(change):
        times = {name: getattr(way, name) * fields[name] for name in ("batch", "sequence") if name in fields}
        way = replace(way, **fields | times)
    return way


def asked(change: str) -> dict[str, Any]:
    """The arguments of `profkit.fit` that ask for a change."""
    return {name: value for _, arguments in parts(change) for name, value in arguments.items()}


Maker = Callable[[int, int, Way], Any]


@dataclass(frozen=True)
class Model:
    """A model, the batch and the length that are recorded, and what is measured of it."""

    make: Maker
    batch: int
    length: int
    changes: str
    way: Way = Way()
    limited: bool = False
    """Whether its largest batch is tried in a limited memory."""


def text(
    config: str,
    model: str,
    *,
    masked: bool = False,
    layers: str = "num_hidden_layers",
    n: int = 12,
    **sizes: Any,
) -> Maker:
    """A model of transformers on tokens."""

    def make(batch: int, length: int, way: Way) -> Any:
        return public.transformer(
            config, model, {layers: n}, public.text(batch, length, masked=masked), way, **sizes
        )

    return make


def pictures(library: str, model: str, n: int = 12, side: int = 224, **sizes: Any) -> Maker:
    """A model of pictures, of transformers (``library`` is then its configuration) or of torchvision."""

    def make(batch: int, _: int, way: Way) -> Any:
        if library == "torchvision":
            return public.vision(library, model, batch, side, way, **sizes)
        shown = public.pictures(batch, side, 2)
        return public.transformer(library, model, {"num_hidden_layers": n}, shown, way, **sizes)

    return make


def graph(kind: str, width: int) -> Maker:
    """A graph network: the batch is its nodes, with twenty edges each."""
    return lambda batch, _, way: public.graph(kind, batch, 20 * batch, width, way)


def sound(batch: int, length: int, way: Way) -> Any:
    """wav2vec 2.0 on so many tenths of a second."""
    return public.transformer(
        "Wav2Vec2Config",
        "Wav2Vec2ForSequenceClassification",
        {"num_hidden_layers": 12},
        public.sound(batch, length / 10),
        way,
        layerdrop=0.0,
    )


def segments(batch: int, side: int, _: Way) -> Any:
    """torchvision's fcn on pictures, with the loss of every pixel."""
    import torchvision

    class Segmented(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = torchvision.models.segmentation.fcn_resnet50(weights_backbone=None, num_classes=21)

        def forward(self, pixel_values: Any, labels: Any) -> Any:
            return nn.functional.cross_entropy(self.network(pixel_values)["out"], labels)

    batch, side = (2, 32) if public.TINY else (batch, side)
    images = torch.randn(batch, 3, side, side, device=DEVICE)
    return Segmented(), {"pixel_values": images, "labels": public.ids(21, batch, side, side)}


QUICK = Way(phased=True)
DECODER = {"use_cache": False}
SMALL_LLAMA = {
    "hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12, "num_key_value_heads": 4,
    "vocab_size": 32000, **DECODER,
}  # fmt: skip
SMALL_QWEN = {
    "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2, **DECODER,
}  # fmt: skip
SMALL_NEOX = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, **DECODER}
SMALL_BART = {
    "d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "encoder_attention_heads": 12,
    "decoder_attention_heads": 12, "decoder_layers": 6, **DECODER,
}  # fmt: skip
SMALL_T5 = {"decoder_start_token_id": 0}
SMALL_ALBERT = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}

MODELS: dict[str, Model] = {
    "bart": Model(
        text("BartConfig", "BartForConditionalGeneration", layers="encoder_layers", n=6, **SMALL_BART), 16, 256,
        "base batch_x2 bf16 checkpoint sgd sequence_x2 bf16+batch_x2",
    ),
    "distilbert": Model(
        text("DistilBertConfig", "DistilBertForMaskedLM", layers="n_layers", n=6, masked=True), 24, 256,
        "base batch_x2 bf16 checkpoint infer fused accumulate_2", QUICK,
    ),
    "densenet": Model(
        pictures("torchvision", "densenet121"), 32, 0, "base batch_x2 bf16 infer adam bf16+batch_x2", Way(optimizer="momentum"),
    ),
    "regnet": Model(
        pictures("torchvision", "regnet_y_3_2gf"), 32, 0, "base batch_x2 bf16 checkpoint keep checkpoint+batch_x2",
    ),
    "roberta": Model(
        text("RobertaConfig", "RobertaForMaskedLM", masked=True, max_position_embeddings=514), 16, 256,
        "base batch_x2 bf16 checkpoint sdpa sgd sequence_x2 bf16+batch_x2 checkpoint+batch_x3 accumulate_2 infer", limited=True,
    ),
    "opt": Model(
        text("OPTConfig", "OPTForCausalLM", **DECODER), 4, 1024,
        "base batch_x2 checkpoint sdpa fused checkpoint+batch_x2 sdpa+batch_x2", Way(amp=True),
    ),
    "qwen2": Model(
        text("Qwen2Config", "Qwen2ForCausalLM", **SMALL_QWEN), 2, 1024,
        "base batch_x3 bf16 checkpoint sdpa sgd sequence_x2 bf16+sdpa checkpoint+bf16 offload",
    ),
    "llama": Model(
        text("LlamaConfig", "LlamaForCausalLM", **SMALL_LLAMA), 8, 512,
        "base batch_x2 batch_x0.5 bf16 checkpoint sdpa fused checkpoint+batch_x4 accumulate_2 keep", QUICK, limited=True,
    ),
    "vit": Model(
        pictures("ViTConfig", "ViTForImageClassification"), 32, 0,
        "base batch_x3 bf16 checkpoint sdpa sgd bf16+batch_x3 offload infer", QUICK, limited=True,
    ),
    "wide_resnet": Model(
        pictures("torchvision", "wide_resnet50_2"), 32, 0,
        "base batch_x2 batch_x0.5 bf16 checkpoint adam bf16+batch_x2 accumulate_2 infer", Way(optimizer="momentum"), limited=True,
    ),
    "swin": Model(
        pictures("torchvision", "swin_t"), 32, 0, "base batch_x2 bf16 checkpoint fused bf16+batch_x2 infer",
    ),
    "convnext": Model(
        pictures("torchvision", "convnext_tiny"), 32, 0, "base batch_x2 bf16 checkpoint sgd checkpoint+batch_x3 infer accumulate_2",
        QUICK, limited=True,
    ),
    "vgg": Model(
        pictures("torchvision", "vgg16"), 32, 0, "base batch_x3 bf16 sgd fused bf16+batch_x2",
    ),
    "t5": Model(
        text("T5Config", "T5ForConditionalGeneration", layers="num_layers", n=6, **SMALL_T5), 16, 256,
        "base batch_x2 bf16 checkpoint sequence_x2 sgd checkpoint+batch_x2 keep accumulate_2",
    ),
    "wav2vec": Model(sound, 8, 60, "base batch_x2 bf16 checkpoint sdpa sequence_x2 fused accumulate_2"),
    "graph_sage": Model(graph("GraphSAGE", 256), 60_000, 0, "base batch_x2 bf16 sgd fused", limited=True),
    "gat": Model(graph("GAT", 128), 40_000, 0, "base batch_x2 bf16 sgd"),
    "albert": Model(
        text("AlbertConfig", "AlbertForMaskedLM", **SMALL_ALBERT), 16, 256, "base batch_x2 bf16 sdpa sgd batch_x0.5",
    ),
    "efficientnet": Model(
        pictures("torchvision", "efficientnet_b0"), 64, 0, "base batch_x2 bf16 checkpoint batch_x0.5", Way(amp=True),
    ),
    "fcn": Model(segments, 8, 320, "base batch_x2 batch_x0.5 bf16 checkpoint bf16+batch_x2"),
    "gpt_neox": Model(
        text("GPTNeoXConfig", "GPTNeoXForCausalLM", n=8, **SMALL_NEOX), 4, 768,
        "base batch_x2 bf16 checkpoint sdpa sgd bf16+sdpa keep infer",
    ),
}  # fmt: skip
MODELS |= {
    f"{name}_sharded": replace(
        MODELS[name], way=replace(MODELS[name].way, batch=0.25), changes=f"base {changes}", limited=False
    )
    for name, changes in {
        "llama": "zero3_of_4 adam8bit chunked_loss zero3_of_4+chunked_loss zero1_of_2 zero2_of_2 zero3_of_2 zero1_of_8 zero3_of_8",
        "qwen2": "zero3_of_4 adam8bit chunked_loss zero3_of_4+batch_x4 zero1_of_4 zero2_of_4 zero3_of_8 offload",
        "gpt_neox": "zero3_of_2 adam8bit chunked_loss zero1_of_2 zero2_of_8 zero3_of_8 zero3_of_8+checkpoint zero3_of_2+bf16 offload",
        "roberta": "zero3_of_2 adam8bit zero1_of_4 zero2_of_4 zero3_of_4 zero1_of_8+batch_x2 offload",
        "vit": "zero3_of_2 adam8bit zero1_of_2 zero2_of_2 zero3_of_4 zero3_of_4+bf16 offload",
        "t5": "zero3_of_2 adam8bit zero1_of_2 zero2_of_4 zero3_of_4",
        "wide_resnet": "zero3_of_2 zero1_of_2 zero2_of_2 zero3_of_4 zero3_of_4+batch_x4",
        "opt": "zero3_of_4 adam8bit zero1_of_4 zero2_of_2",
    }.items()
}
"""What lies on one rank of several (`shards`), and what is for large states and vocabularies: a quarter of the batch."""

MODELS |= {
    f"{name}_timed": replace(MODELS[name], changes="base checkpoint bf16 infer", limited=False)
    for name in ("regnet", "swin", "wide_resnet", "convnext", "fcn", "densenet", "distilbert")
}
"""Steps that the host paces, for a quiet study."""

MODELS |= {
    f"{name}_expandable": replace(MODELS[name], changes="base batch_x2 checkpoint batch_x0.5", limited=False)
    for name in ("roberta", "llama", "convnext", "fcn")
}
"""With segments that grow, which `public_study` asks the allocator for by the name."""

LAYERS = frozenset(
    {"Bottleneck", "SwinTransformerBlock", "CNBlock", "MBConv", "EncoderBlock", "ResBottleneckBlock"}
)
"""What is checkpointed of torchvision's networks."""


def checkpoint_layers(model: nn.Module) -> None:
    """Recompute each layer by itself, as the libraries advise."""
    if hasattr(model, "gradient_checkpointing_enable"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return
    for module in layers_of(model):
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)  # type: ignore[method-assign]


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers that are recomputed or sharded by themselves, as the libraries name them."""
    names = LAYERS | set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


class Offloaded:
    """Adam with its state and a copy of the weights in the host's memory."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.copies = [each.detach().to("cpu", copy=True).requires_grad_() for each in parameters]
        self.optimizer = torch.optim.AdamW(self.copies, lr=1e-5)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for each in self.parameters:
            each.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for copy, own in zip(self.copies, self.parameters, strict=True):
            copy.grad = own.grad.to("cpu") if own.grad is not None else None
        self.optimizer.step()
        for copy, own in zip(self.copies, self.parameters, strict=True):
            own.copy_(copy)


def optimizer_of(parameters: list[nn.Parameter], way: Way) -> Any:
    """The optimizer of a way."""
    if way.offloads:
        return Offloaded(parameters)
    if way.shard == "zero1":
        return sharded_adam(parameters)
    if way.optimizer == "adam8bit":
        return Adam8bit(parameters)
    if way.optimizer == "adam":
        return torch.optim.AdamW(parameters, lr=1e-5, fused=True if way.fused else None)
    momentum = 0.9 if way.optimizer == "momentum" else 0.0
    return torch.optim.SGD(parameters, lr=1e-5, momentum=momentum, fused=True if way.fused else None)


def micro_batches(inputs: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """The inputs in so many parts, by the first dimension."""
    pieces = {name: value.chunk(count) for name, value in inputs.items()}
    return [{name: mine[i] for name, mine in pieces.items()} for i in range(len(next(iter(pieces.values()))))]


def named(way: Way, phase: str) -> AbstractContextManager[Any]:
    return torch.profiler.record_function(phase) if way.phased else nullcontext()


def make(name: str, way: Way, batch: int | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """A model and its inputs in the host's memory: nothing of the device is touched."""
    torch.manual_seed(0)
    known = MODELS[name]
    model, inputs = known.make(
        batch or max(round(known.batch * way.batch), 1), max(round(known.length * way.sequence), 1), way
    )
    return model, inputs


def place(model: nn.Module, inputs: dict[str, Any], way: Way) -> Callable[[], None]:
    """The step, with the model and its inputs on the device."""
    model.to(DEVICE).train(way.training)
    inputs = {name: value.to(DEVICE) for name, value in inputs.items()}
    if way.checkpointed:
        checkpoint_layers(model)
    if way.shard is not None:
        model = shard(model, layers_of(model), way.shard, way.ranks)
    step_of = ChunkedLoss(model) if way.chunks_loss else model
    optimizer = optimizer_of([each for each in model.parameters() if each.requires_grad], way)
    return partial(run_step, step_of, inputs, optimizer, way)


def run_step(model: nn.Module, inputs: dict[str, Any], optimizer: Any, way: Way) -> None:
    """One step."""

    def loss(given: dict[str, Any]) -> Any:
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=way.amp):
            found = model(**given)
        return getattr(found, "loss", found)

    if not way.training:
        with torch.no_grad():
            loss(inputs)
        return
    optimizer.zero_grad(set_to_none=not way.keeps_gradients)
    for given in micro_batches(inputs, way.accumulate) if way.accumulate > 1 else [inputs]:
        with named(way, "forward"):
            value = loss(given) / way.accumulate
        with named(way, "backward"):
            value.backward()
    with named(way, "optimizer"):
        optimizer.step()
