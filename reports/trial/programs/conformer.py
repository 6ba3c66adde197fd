"""torchaudio's Conformer with a head over its frames."""

import torch
import torchaudio

BATCH, FRAMES, WIDTH, LAYERS = 16, 400, 256, 12


class Speech(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torchaudio.models.Conformer(WIDTH, 4, 4 * WIDTH, LAYERS, 31)
        self.head = torch.nn.Linear(WIDTH, 1024)

    def forward(self, frames, lengths):
        return self.head(self.body(frames, lengths)[0])


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = Speech().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
lengths = torch.full((BATCH,), FRAMES, device=device)
frames = torch.randn(BATCH, FRAMES, WIDTH, device=device)
labels = torch.randint(0, 1024, (BATCH, FRAMES), device=device)
for _ in range(20_000):
    loss = torch.nn.functional.cross_entropy(model(frames, lengths).transpose(1, 2), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
