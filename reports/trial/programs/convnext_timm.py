"""ConvNeXt of timm, with timm's own optimizer factory and loss."""

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2

NAME, BATCH, SIDE = "convnext_tiny", 64, 224

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = timm.create_model(NAME, num_classes=1000).to(device)
criterion = LabelSmoothingCrossEntropy()
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
for _ in range(20_000):
    images = torch.randn(BATCH, 3, SIDE, SIDE, device=device)
    labels = torch.randint(0, 1000, (BATCH,), device=device)
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
