"""T5 small of transformers with an optimizer that updates weight by weight."""

import torch
from transformers import T5Config, T5ForConditionalGeneration

BATCH, LENGTH, LAYERS, WORDS = 8, 128, 6, 32_128

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
config = T5Config(num_layers=LAYERS, vocab_size=WORDS, decoder_start_token_id=0)
model = T5ForConditionalGeneration(config).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
for _ in range(20_000):
    words = torch.randint(0, WORDS, (BATCH, LENGTH), device=device)
    loss = model(input_ids=words, labels=words).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
