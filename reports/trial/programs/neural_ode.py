"""torchdiffeq's demonstration: a spiral, learnt by a neural ODE."""

import torch
from torchdiffeq import odeint

POINTS, WIDTH = 20, 50


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 2))

    def forward(self, t, y):
        return self.net(y**3)


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
times = torch.linspace(0.0, 2.0, POINTS, device=device)
start = torch.tensor([[2.0, 0.0]], device=device)
turning = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]], device=device)
with torch.no_grad():
    truth = odeint(lambda t, y: y**3 @ turning, start, times, method="rk4")
field = Field().to(device)
optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-3)
for _ in range(50_000):
    optimizer.zero_grad()
    loss = (odeint(field, start, times, method="rk4") - truth).abs().mean()
    loss.backward()
    optimizer.step()
