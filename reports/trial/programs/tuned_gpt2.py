"""GPT-2 with all switches set: nothing is left to change."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

BATCH, LENGTH, LAYERS, WORDS = 16, 512, 6, 50_257

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
config = GPT2Config(n_layer=LAYERS, vocab_size=WORDS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
model = GPT2LMHeadModel(config).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
compiled = torch.compile(model)
words = torch.randint(0, WORDS, (BATCH, LENGTH), device=device)
for _ in range(20_000):
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = compiled(input_ids=words, labels=words).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
