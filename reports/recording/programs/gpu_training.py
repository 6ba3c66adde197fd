"""A small transformer, unedited: 20 steps of forward, loss, backward and AdamW."""

import torch
from torch.nn import functional as F

torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, norm_first=True)
model = torch.nn.Sequential(
    torch.nn.Embedding(1024, 256), torch.nn.TransformerEncoder(layer, 4), torch.nn.Linear(256, 1024)
)
device = "cuda" if torch.cuda.is_available() else "cpu"
model.to(device)
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.utils.data.TensorDataset(torch.randint(0, 1024, (160, 129)))
for (batch,) in torch.utils.data.DataLoader(tokens, batch_size=8):
    batch = batch.to(device)
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
