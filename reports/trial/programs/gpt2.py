"""GPT-2 small of transformers with eager attention."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

BATCH, LENGTH, LAYERS, WORDS = 8, 512, 12, 50_257

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
config = GPT2Config(n_layer=LAYERS, vocab_size=WORDS, attn_implementation="eager")
model = GPT2LMHeadModel(config).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(20_000):
    words = torch.randint(0, WORDS, (BATCH, LENGTH), device=device)
    loss = model(input_ids=words, labels=words).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
