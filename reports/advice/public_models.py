"""Training and inference steps of models from public libraries, with random weights and data.

A *way* says how the step is run (types, attention, optimizer, layout, compiler); the study compares ways of one model.
``MODELS`` gives for each: the maker, the way it is run before any change, and the changes to time. Written without sight
of what the model of prices says about any of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TINY = bool(os.environ.get("TINY"))
"""For a try on a CPU: one layer, batch 1."""


@dataclass(frozen=True)
class Way:
    """How a step is run."""

    tf32: bool = False
    amp: str | None = None
    attention: str = "eager"
    optimizer: str = "foreach"
    compiled: bool = False
    channels_last: bool = False
    reads_loss: bool = False
    training: bool = True
    finds_unused: bool = False
    """Under DistributedDataParallel: ``find_unused_parameters``."""
    bucket_mb: float = 25.0


CHANGES: dict[str, dict[str, Any]] = {
    "tf32": {"tf32": True},
    "bf16": {"amp": "bf16"},
    "sdpa": {"attention": "sdpa"},
    "foreach": {"optimizer": "foreach"},
    "fused": {"optimizer": "fused"},
    "compile": {"compiled": True},
    "channels_last": {"channels_last": True},
    "no_sync": {"reads_loss": False},
    "no_unused": {"finds_unused": False},
    "buckets": {"bucket_mb": 25.0},
}
"""What each change sets; several are joined with +."""


def changed(way: Way, change: str) -> Way:
    """The way after a change such as ``tf32+sdpa``."""
    for part in change.split("+"):
        way = replace(way, **CHANGES[part])
    return way


def size(normal: int, tiny: int = 1) -> int:
    return tiny if TINY else normal


def ids(vocabulary: int, *shape: int) -> Any:
    return torch.randint(0, vocabulary, shape, device=DEVICE)


def transformer(
    config: str, model: str, layers: dict[str, int], batch: Callable[[Any], Any], way: Way, **sizes: Any
) -> Any:
    """A model of transformers, built from its configuration with ``layers`` (fewer in a try)."""
    import transformers

    made = getattr(transformers, config)(
        **{k: size(n, 1) for k, n in layers.items()}, **sizes, attn_implementation=way.attention
    )
    return getattr(transformers, model)(made), batch(made)


def text(batch: int, length: int, *, masked: bool = False) -> Callable[[Any], Any]:
    """Token ids with labels; ``masked`` gives an attention mask as tokenizers do."""

    def make(config: Any) -> Any:
        shape = size(batch), size(length, 16)
        tokens = ids(config.vocab_size, *shape)
        found = {"input_ids": tokens, "labels": tokens}
        return found | (
            {"attention_mask": torch.ones(shape, device=DEVICE, dtype=torch.long)} if masked else {}
        )

    return make


def pictures(batch: int, side: int, labels: int = 1000) -> Callable[[Any], Any]:
    def make(_: Any) -> Any:
        images = torch.randn(size(batch), 3, side, side, device=DEVICE)
        return {"pixel_values": images, "labels": ids(labels, size(batch))}

    return make


def sound(batch: int, seconds: float) -> Callable[[Any], Any]:
    def make(_: Any) -> Any:
        return {
            "input_values": torch.randn(size(batch), int(16000 * seconds), device=DEVICE),
            "labels": ids(2, size(batch)),
        }

    return make


class Classified(nn.Module):
    """A network of pictures with its loss, in the form that models of transformers have."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.loss = nn.CrossEntropyLoss()

    def forward(self, pixel_values: Any, labels: Any) -> Any:
        return self.loss(self.network(pixel_values), labels)


def vision(library: str, name: str, batch: int, side: int, _: Way, **options: Any) -> Any:
    """A network of torchvision or timm."""
    if library == "timm":
        import timm

        network = timm.create_model(name, num_classes=1000, **options)
    else:
        import torchvision

        network = getattr(torchvision.models, name)(**options)
    return Classified(network), pictures(batch, side)(None)


class OnGraph(nn.Module):
    """A graph network with its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Any, edges: Any, labels: Any) -> Any:
        return nn.functional.cross_entropy(self.network(x, edges), labels)


def graph(kind: str, nodes: int, edges: int, width: int, _: Way) -> Any:
    """A network of torch_geometric on a random graph."""
    from torch_geometric.nn import models

    network = getattr(models, kind)(width, width, num_layers=3, out_channels=40)
    nodes = size(nodes, 50)
    return OnGraph(network), {
        "x": torch.randn(nodes, width, device=DEVICE),
        "edges": ids(nodes, 2, size(edges, 200)),
        "labels": ids(40, nodes),
    }


class Speech(nn.Module):
    """torchaudio's conformer with a loss over its frames."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        import torchaudio

        self.body = torchaudio.models.Conformer(width, 4, 4 * width, layers, 31)
        self.head = nn.Linear(width, 1024)

    def forward(self, x: Any, lengths: Any, labels: Any) -> Any:
        frames, _ = self.body(x, lengths)
        return nn.functional.cross_entropy(self.head(frames).transpose(1, 2), labels)


def conformer(batch: int, frames: int, _: Way) -> Any:
    batch, frames = size(batch), size(frames, 20)
    return Speech(256, size(12)), {
        "x": torch.randn(batch, frames, 256, device=DEVICE),
        "lengths": torch.full((batch,), frames, device=DEVICE),
        "labels": ids(1024, batch, frames),
    }


FP32 = Way()
LOOPED = Way(optimizer="single", reads_loss=True)
BF16 = Way(amp="bf16")
FP16 = Way(amp="fp16")
INFERENCE = Way(training=False)


def twelve(config: str, model: str, batch: Callable[[Any], Any], **sizes: Any) -> Callable[[Way], Any]:
    """A model of transformers with twelve layers."""
    return partial(transformer, config, model, {"num_hidden_layers": 12}, batch, **sizes)


MODELS: dict[str, tuple[Callable[[Way], Any], Way, tuple[str, ...]]] = {
    # the device sets the pace
    "roberta": (
        twelve("RobertaConfig", "RobertaForMaskedLM", text(32, 256, masked=True)),
        FP32,
        ("tf32", "bf16", "sdpa", "fused"),
    ),
    "opt": (
        partial(transformer, "OPTConfig", "OPTForCausalLM", {"num_hidden_layers": 12}, text(8, 1024)),
        BF16,
        ("sdpa", "fused", "compile"),
    ),
    "qwen2": (
        partial(
            transformer,
            "Qwen2Config",
            "Qwen2ForCausalLM",
            {"num_hidden_layers": 12},
            text(4, 1024),
            hidden_size=896,
            intermediate_size=4864,
            num_attention_heads=14,
            num_key_value_heads=2,
        ),
        FP32,
        ("tf32", "bf16", "sdpa", "bf16+sdpa"),
    ),
    "vit": (
        twelve("ViTConfig", "ViTForImageClassification", pictures(64, 224, 2)),
        FP32,
        ("tf32", "bf16", "sdpa"),
    ),
    "convnext": (partial(vision, "timm", "convnext_tiny", 64, 224), FP32, ("tf32", "bf16", "channels_last")),
    "vgg": (
        partial(vision, "torchvision", "vgg16", 64, 224),
        FP32,
        ("bf16", "channels_last", "bf16+channels_last"),
    ),
    "densenet": (partial(vision, "torchvision", "densenet121", 64, 224), FP16, ("channels_last", "compile")),
    "wide_resnet": (
        partial(vision, "torchvision", "wide_resnet50_2", 64, 224),
        FP32,
        ("bf16", "channels_last", "bf16+channels_last"),
    ),
    "mixer": (partial(vision, "timm", "mixer_b16_224", 64, 224), FP32, ("tf32", "bf16", "compile")),
    "wav2vec": (
        twelve("Wav2Vec2Config", "Wav2Vec2ForSequenceClassification", sound(8, 8)),
        FP32,
        ("tf32", "bf16", "sdpa"),
    ),
    "swin": (partial(vision, "torchvision", "swin_t", 64, 224), FP32, ("tf32", "bf16")),
    "graph_sage": (partial(graph, "GraphSAGE", 100_000, 2_000_000, 256), FP32, ("tf32", "fused")),
    "gat": (partial(graph, "GAT", 50_000, 1_000_000, 128), FP32, ("tf32", "bf16")),
    "conformer": (partial(conformer, 16, 800), FP32, ("tf32", "bf16")),
    "gpt_neox": (
        partial(
            transformer,
            "GPTNeoXConfig",
            "GPTNeoXForCausalLM",
            {"num_hidden_layers": 8},
            text(4, 1024),
            hidden_size=1024,
            intermediate_size=4096,
            num_attention_heads=16,
        ),
        Way(tf32=True),
        ("bf16", "sdpa", "compile"),
    ),
    # the host sets the pace, or nearly so
    "electra": (
        twelve("ElectraConfig", "ElectraForMaskedLM", text(8, 128, masked=True)),
        LOOPED,
        ("foreach", "fused", "no_sync", "sdpa"),
    ),
    "t5": (
        partial(
            transformer,
            "T5Config",
            "T5ForConditionalGeneration",
            {"num_layers": 6},
            text(8, 128),
            decoder_start_token_id=0,
        ),
        LOOPED,
        ("foreach", "fused", "bf16"),
    ),
    "distilbert": (
        partial(
            transformer,
            "DistilBertConfig",
            "DistilBertForMaskedLM",
            {"n_layers": 6},
            text(16, 128, masked=True),
        ),
        LOOPED,
        ("tf32", "fused", "compile"),
    ),
    "mobilenet": (
        partial(vision, "torchvision", "mobilenet_v3_large", 32, 224),
        LOOPED,
        ("fused", "channels_last", "bf16"),
    ),
    "efficientnet": (partial(vision, "timm", "efficientnet_b0", 32, 224), FP16, ("channels_last", "compile")),
    "regnet": (partial(vision, "torchvision", "regnet_y_400mf", 32, 224), FP32, ("channels_last", "fused")),
    "gcn": (partial(graph, "GCN", 2_700, 10_000, 128), LOOPED, ("fused", "no_sync")),
    "mamba": (
        partial(
            transformer,
            "MambaConfig",
            "MambaForCausalLM",
            {"num_hidden_layers": 4},
            text(2, 64),
            hidden_size=512,
        ),
        FP32,
        ("tf32", "fused"),
    ),
    "albert": (
        twelve(
            "AlbertConfig",
            "AlbertForMaskedLM",
            text(8, 128),
            hidden_size=768,
            num_attention_heads=12,
            intermediate_size=3072,
        ),
        FP32,
        ("tf32", "sdpa"),
    ),
    # inference
    "vit_inference": (
        partial(vision, "timm", "vit_small_patch16_224", 64, 224),
        INFERENCE,
        ("tf32", "bf16", "compile"),
    ),
    "resnet_inference": (
        partial(vision, "torchvision", "resnet101", 64, 224),
        INFERENCE,
        ("bf16", "channels_last", "bf16+channels_last"),
    ),
    "bert_inference": (
        twelve("BertConfig", "BertForMaskedLM", text(32, 256)),
        INFERENCE,
        ("tf32", "bf16", "sdpa"),
    ),
    # added for the third study on public models, with the host's own time measured
    "bart": (
        partial(
            transformer,
            "BartConfig",
            "BartForConditionalGeneration",
            {"encoder_layers": 6, "decoder_layers": 6},
            text(8, 128),
            d_model=768,
        ),
        LOOPED,
        ("fused", "sdpa", "no_sync"),
    ),
    "mistral": (
        partial(
            transformer,
            "MistralConfig",
            "MistralForCausalLM",
            {"num_hidden_layers": 8},
            text(4, 1024),
            hidden_size=1024,
            intermediate_size=3584,
            num_attention_heads=16,
            num_key_value_heads=4,
        ),
        Way(tf32=True),
        ("bf16", "sdpa", "compile"),
    ),
    "beit": (
        twelve("BeitConfig", "BeitForImageClassification", pictures(64, 224, 2)),
        FP32,
        ("tf32", "bf16"),
    ),
    "hubert": (
        twelve("HubertConfig", "HubertForSequenceClassification", sound(8, 6)),
        Way(tf32=True),
        ("bf16", "sdpa"),
    ),
    "resnext": (
        partial(vision, "torchvision", "resnext50_32x4d", 64, 224),
        FP32,
        ("bf16", "channels_last", "tf32"),
    ),
    "resnet18": (
        partial(vision, "torchvision", "resnet18", 256, 224),
        FP16,
        ("channels_last", "compile"),
    ),
    "shufflenet": (
        partial(vision, "torchvision", "shufflenet_v2_x1_0", 64, 224),
        Way(optimizer="single"),
        ("foreach", "fused", "channels_last"),
    ),
    "gin": (partial(graph, "GIN", 50_000, 800_000, 256), LOOPED, ("tf32", "fused")),
    "roberta_inference": (
        twelve("RobertaConfig", "RobertaForMaskedLM", text(8, 128, masked=True)),
        INFERENCE,
        ("tf32", "bf16", "sdpa"),
    ),
    "opt_inference": (
        partial(transformer, "OPTConfig", "OPTForCausalLM", {"num_hidden_layers": 12}, text(4, 512)),
        INFERENCE,
        ("tf32", "bf16", "compile"),
    ),
    "deit_inference": (
        partial(vision, "timm", "deit_base_patch16_224", 64, 224),
        INFERENCE,
        ("tf32", "bf16"),
    ),
    "efficientnet_inference": (
        partial(vision, "timm", "efficientnet_b3", 32, 288),
        INFERENCE,
        ("bf16", "channels_last"),
    ),
    "convnext_inference": (partial(vision, "timm", "convnext_small", 64, 224), INFERENCE, ("tf32", "bf16")),
    "densenet_inference": (
        partial(vision, "torchvision", "densenet169", 64, 224),
        INFERENCE,
        ("bf16", "channels_last", "bf16+channels_last"),
    ),
}


RANKS: dict[str, tuple[Way, tuple[str, ...]]] = {
    "roberta": (Way(finds_unused=True), ("tf32", "bf16", "no_unused")),
    "vit": (Way(tf32=True), ("bf16", "sdpa", "fused")),
    "gpt_neox": (BF16, ("sdpa", "fused", "compile")),
    "wide_resnet": (FP16, ("channels_last", "fused")),
    "mobilenet": (Way(optimizer="single", finds_unused=True), ("fused", "no_unused", "fused+no_unused")),
    "distilbert": (Way(bucket_mb=0.5), ("tf32", "buckets", "bf16")),
}
"""Models of the same makers under DistributedDataParallel: the way before any change, and the changes."""


def step_of(name: str, way: Way) -> Callable[[], Any]:
    """A step of a model in a way. It sets the process's switches each time it runs, since ways share a process.

    In a process group the model runs under DistributedDataParallel, with data of the rank's own.
    """
    many = torch.distributed.is_initialized()
    torch.manual_seed(torch.distributed.get_rank() if many else 0)
    model, batch = MODELS[name][0](way)
    model = model.to(DEVICE).train(way.training)
    if way.channels_last:
        model = model.to(memory_format=torch.channels_last)
        batch["pixel_values"] = batch["pixel_values"].to(memory_format=torch.channels_last)
    if many:
        model = nn.parallel.DistributedDataParallel(
            model, find_unused_parameters=way.finds_unused, bucket_cap_mb=way.bucket_mb
        )
    run = torch.compile(model) if way.compiled else model
    amp = {None: None, "bf16": torch.bfloat16, "fp16": torch.float16}[way.amp]
    scaler = torch.amp.GradScaler(DEVICE, enabled=way.amp == "fp16")
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-5, fused=way.optimizer == "fused", foreach=way.optimizer == "foreach"
    )

    def loss() -> Any:
        with torch.autocast(DEVICE, dtype=amp or torch.bfloat16, enabled=amp is not None):
            found = run(**batch)
        return getattr(found, "loss", found)

    def train() -> None:
        optimizer.zero_grad()
        with torch.profiler.record_function("forward"):
            value = loss()
        with torch.profiler.record_function("backward"):
            scaler.scale(value).backward()
        with torch.profiler.record_function("optimizer"):
            scaler.step(optimizer)
            scaler.update()
        if way.reads_loss:
            value.item()

    def infer() -> None:
        with torch.inference_mode(), torch.profiler.record_function("forward"):
            loss()

    def step() -> None:
        torch.backends.cuda.matmul.allow_tf32 = way.tf32
        (train if way.training else infer)()

    return step
