"""A vision transformer of transformers, its images from a DataLoader in the main process."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import ViTConfig, ViTForImageClassification

BATCH, SIDE, LAYERS, IMAGES = 64, 224, 12, 2048


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = TensorDataset(torch.randn(IMAGES, 3, SIDE, SIDE), torch.randint(0, 10, (IMAGES,)))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    config = ViTConfig(num_hidden_layers=LAYERS, image_size=SIDE, num_labels=10, attn_implementation="eager")
    model = ViTForImageClassification(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _ in range(1000):
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            loss = model(pixel_values=images, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
