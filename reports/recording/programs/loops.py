"""Small training programs of public libraries: ``python loops.py NAME``. None of them knows of profkit."""

import sys

import torch
from torch.nn import functional as F

STEPS = 12


def timm_classifier():
    register = torch.library.register_fake
    torch.library.register_fake = lambda *_, **__: (
        lambda function: function
    )  # a torchvision without its operators
    import timm
    import timm.loss
    import timm.optim

    torch.library.register_fake = register
    model = timm.create_model("resnet10t", num_classes=10)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    rows = torch.utils.data.TensorDataset(
        torch.randn(2 * STEPS, 3, 64, 64), torch.randint(0, 10, (2 * STEPS,))
    )
    criterion = timm.loss.LabelSmoothingCrossEntropy()
    for images, labels in torch.utils.data.DataLoader(rows, batch_size=2):
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def diffusion():
    from diffusers import DDPMScheduler, UNet2DModel

    model = UNet2DModel(
        sample_size=16, in_channels=1, out_channels=1, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    noise_of = DDPMScheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW(model.parameters())
    for images in torch.utils.data.DataLoader(torch.randn(2 * STEPS, 1, 16, 16), batch_size=2):
        noise, times = torch.randn_like(images), torch.randint(0, 100, (2,))
        guess = model(noise_of.add_noise(images, noise, times), times).sample
        loss = F.mse_loss(guess, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def hf_trainer():
    import transformers

    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=64, n_positions=32)
    tokens = torch.randint(0, 64, (2 * STEPS, 16))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = transformers.TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=2,
        max_steps=STEPS,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
    )
    transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=rows
    ).train()


def lightning_trainer():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, index):
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.log("loss", F.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, accumulate_grad_batches=2
    )
    trainer.fit(Module(), loader(), loader())


def accelerate_loop():
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = net()
    model, optimizer, batches = accelerator.prepare(
        model, torch.optim.Adam(model.parameters()), loader(2 * STEPS)
    )
    for x, y in batches:
        with accelerator.accumulate(model):
            accelerator.backward(F.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()


def ddp():
    torch.distributed.init_process_group("gloo")
    train(torch.nn.parallel.DistributedDataParallel(net()))
    torch.distributed.destroy_process_group()


def compiled():
    train(torch.compile(net()))


def grad_scaler():
    model, scaler = net(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader():
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for number in range(4 * STEPS):
            yield torch.full((8,), number / STEPS), number % 3


def iterable():
    train(net(), torch.utils.data.DataLoader(Stream(), batch_size=4, num_workers=2))


def net():
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))


def loader(batches=STEPS):
    rows = torch.utils.data.TensorDataset(torch.randn(4 * batches, 8), torch.randint(0, 3, (4 * batches,)))
    return torch.utils.data.DataLoader(rows, batch_size=4)


def train(model, batches=None):
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader() if batches is None else batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
