"""GraphSAGE of torch_geometric on one random graph."""

import torch
from torch_geometric.nn.models import GraphSAGE

NODES, EDGES, WIDTH = 20_000, 200_000, 256

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = GraphSAGE(WIDTH, WIDTH, num_layers=3, out_channels=40).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, weight_decay=5e-4)
features = torch.randn(NODES, WIDTH, device=device)
edges = torch.randint(0, NODES, (2, EDGES), device=device)
labels = torch.randint(0, 40, (NODES,), device=device)
for _ in range(100_000):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(features, edges), labels)
    loss.backward()
    optimizer.step()
