"""ResNet-50 of torchvision on its FakeData, whose images are made and transformed one by one."""

import torch
import torchvision
from torch.utils.data import DataLoader
from torchvision.transforms import v2

BATCH, SIDE = 64, 224


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    transform = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
    data = torchvision.datasets.FakeData(100_000, (3, SIDE, SIDE), 1000, transform)
    loader = DataLoader(data, batch_size=BATCH)
    model = torchvision.models.resnet50().to(device)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
