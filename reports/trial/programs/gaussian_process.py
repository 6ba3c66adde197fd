"""The exact Gaussian process of gpytorch's tutorial, with more points."""

import gpytorch
import torch

POINTS = 2000


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.linspace(0, 1, POINTS, device=device)
y = torch.sin(x * 6.28) + 0.2 * torch.randn(POINTS, device=device)
likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
model = Exact(x, y, likelihood).to(device)
model.train()
likelihood.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for _ in range(50_000):
    optimizer.zero_grad()
    loss = -criterion(model(x), y)
    loss.backward()
    optimizer.step()
