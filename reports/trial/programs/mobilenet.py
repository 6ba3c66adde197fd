"""MobileNetV3 of torchvision on a batch that stays on the GPU, its loss read at each step."""

import torch
import torchvision

BATCH, SIDE = 32, 224

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torchvision.models.mobilenet_v3_large().to(device)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
images = torch.randn(BATCH, 3, SIDE, SIDE, device=device)
labels = torch.randint(0, 1000, (BATCH,), device=device)
total = 0.0
for _ in range(20_000):
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
