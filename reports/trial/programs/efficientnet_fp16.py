"""EfficientNet of timm in fp16 with a scaler: half tuned already."""

import timm
import torch

NAME, BATCH, SIDE = "efficientnet_b0", 64, 224

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = timm.create_model(NAME, num_classes=1000).to(device)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)
images = torch.randn(BATCH, 3, SIDE, SIDE, device=device)
labels = torch.randint(0, 1000, (BATCH,), device=device)
for _ in range(20_000):
    with torch.autocast(device, dtype=torch.float16 if device == "cuda" else torch.bfloat16):
        loss = criterion(model(images), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
