"""A RegNet of torchvision under Lightning's Trainer."""

import lightning as L
import torch
import torchvision
from torch.utils.data import DataLoader, TensorDataset

BATCH, SIDE, IMAGES = 32, 224, 1024


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torchvision.models.regnet_y_400mf()

    def training_step(self, batch, index):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.network(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    L.seed_everything(0)
    data = TensorDataset(torch.randn(IMAGES, 3, SIDE, SIDE), torch.randint(0, 1000, (IMAGES,)))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    trainer = L.Trainer(max_epochs=1000, logger=False, enable_checkpointing=False, devices=1)
    trainer.fit(Classifier(), loader)
