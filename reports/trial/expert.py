"""What somebody who knows torch would write into each of the ``programs``: the same switches, set by hand.

``EXPERT`` names for each program the ways such a person would time; the best of them counts.
"""

from __future__ import annotations

import re
from typing import Final

EDITS: Final[dict[str, tuple[str, str]]] = {
    "tf32": (r"\nimport torch\n", '\nimport torch\ntorch.set_float32_matmul_precision("high")\n'),
    "cudnn": (r"\nimport torch\n", "\nimport torch\ntorch.backends.cudnn.benchmark = True\n"),
    "fused": (r"(optimizer = torch\.optim\.\w+\(.*?)(?:, foreach=False)?\)\n", r"\1, fused=True)\n"),
    "foreach": (r"(optimizer = torch\.optim\.\w+\(.*?)\)\n", r"\1, foreach=True)\n"),
    "bf16": (
        r"\n( +)loss = (.*)\n",
        r"\n\1with torch.autocast(device, dtype=torch.bfloat16):\n\1    loss = \2\n",
    ),
    "compile": (r"\n( *)(model = .*\.to\(device\))\n", r"\n\1\2\n\1model = torch.compile(model)\n"),
    "sdpa": (r'attn_implementation="eager"', 'attn_implementation="sdpa"'),
    "channels_last": (
        r"\n( *)(model = .*\.to\()device\)\n",
        r"\n\1\2device, memory_format=torch.channels_last)\n",
    ),
    "workers": (
        r"DataLoader\((.*)\)\n",
        r"DataLoader(\1, num_workers=8, persistent_workers=True, pin_memory=True)\n",
    ),
    "non_blocking": (
        r"images\.to\(device\), labels\.to\(device\)",
        "images.to(device, non_blocking=True), labels.to(device, non_blocking=True)",
    ),
    "trainer_bf16": (r"report_to=\[\],", "report_to=[], bf16=True,"),
    "trainer_workers": (
        r"report_to=\[\],",
        "report_to=[], dataloader_num_workers=8, dataloader_persistent_workers=True,",
    ),
    "lightning_bf16": (r"devices=1", 'devices=1, precision="bf16-mixed"'),
    "lightning_fused": (r"lr=1e-3\)", "lr=1e-3, fused=True)"),
    "timm_fused": (r"weight_decay=0.05\)", "weight_decay=0.05, fused=True)"),
}

EXPERT: Final[dict[str, tuple[str, ...]]] = {
    "bert_trainer": ("tf32 trainer_bf16 trainer_workers",),
    "gpt2": ("tf32 sdpa bf16 fused", "tf32 sdpa bf16 fused compile"),
    "qwen2": ("tf32 bf16 fused", "tf32 bf16 fused compile"),
    "vit_loader": ("tf32 sdpa bf16 fused workers non_blocking",),
    "resnet_fakedata": ("tf32 workers non_blocking bf16 channels_last",),
    "mobilenet": ("fused", "fused compile"),
    "convnext_timm": ("tf32 bf16 timm_fused", "tf32 bf16 timm_fused compile"),
    "efficientnet_fp16": ("fused channels_last cudnn", "fused compile"),
    "graph_sage": ("tf32 fused",),
    "regnet_lightning": ("tf32 cudnn lightning_fused workers",),
    "conformer": ("tf32 bf16 fused", "tf32 bf16 fused compile"),
    "gaussian_process": ("fused",),
    "neural_ode": ("foreach",),
    "t5": ("tf32 fused", "tf32 fused compile"),
    "swin": ("tf32 bf16 fused", "tf32 bf16 fused compile"),
    "tuned_gpt2": (),
}


def edited(source: str, way: str) -> str:
    """A program with the edits of a way.

    Raises:
        ValueError: An edit finds nothing to change.
    """
    for name in way.split():
        pattern, new = EDITS[name]
        source, count = re.subn(pattern, new, source, count=1)
        if not count:
            raise ValueError(f"{name}: nothing to change")
    return source


def resized(source: str, sizes: dict[str, int | str]) -> str:
    """A program with other sizes in the line that names them.

    Raises:
        ValueError: It names none of these.
    """
    found = re.search(r"^([A-Z][A-Z, ]*) = (.*)$", source, re.MULTILINE)
    if found is None:
        raise ValueError("no line of sizes")
    names = found[1].split(", ")
    values = ", ".join(repr(sizes[name]) for name in names)
    return source.replace(found[0], f"{found[1]} = {values}")
