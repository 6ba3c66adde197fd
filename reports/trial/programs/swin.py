"""Swin transformer of torchvision in fp32."""

import torch
import torchvision

NAME, BATCH, SIDE = "swin_t", 64, 224

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torchvision.models.get_model(NAME).to(device)
criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images = torch.randn(BATCH, 3, SIDE, SIDE, device=device)
labels = torch.randint(0, 1000, (BATCH,), device=device)
for _ in range(20_000):
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
