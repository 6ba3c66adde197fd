"""BERT pretraining by masked words, with transformers' own Trainer."""

import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

BATCH, LENGTH, LAYERS, WORDS = 32, 128, 12, 30_522


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        words = torch.randint(5, WORDS, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


if __name__ == "__main__":
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(num_hidden_layers=LAYERS, vocab_size=WORDS))
    arguments = TrainingArguments(
        output_dir="checkpoints",
        per_device_train_batch_size=BATCH,
        max_steps=20_000,
        save_strategy="no",
        report_to=[],
        logging_steps=100,
    )
    Trainer(model=model, args=arguments, train_dataset=Words()).train()
