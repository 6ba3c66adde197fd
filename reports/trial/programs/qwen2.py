"""A Qwen2 of half a billion weights, its first layers, fine-tuned in fp32."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

BATCH, LENGTH, LAYERS, WORDS = 4, 1024, 8, 32_000

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
config = Qwen2Config(
    num_hidden_layers=LAYERS, hidden_size=896, intermediate_size=4864, num_attention_heads=14,
    num_key_value_heads=2, vocab_size=WORDS,
)  # fmt: skip
model = Qwen2ForCausalLM(config).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for _ in range(20_000):
    words = torch.randint(0, WORDS, (BATCH, LENGTH), device=device)
    loss = model(input_ids=words, labels=words).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
