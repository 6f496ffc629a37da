"""Writes a LoRA of random weights for a Llama, which changes what it writes: `python vllm_lora.py MODEL DIRECTORY`, with the directory of the model. It is the same each time."""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig

RANK = 8

source, target = sys.argv[1:]
torch.manual_seed(1)
model = AutoConfig.from_pretrained(source)
of_head = model.hidden_size // model.num_attention_heads
widths = {"q_proj": model.num_attention_heads * of_head, "v_proj": model.num_key_value_heads * of_head}
os.makedirs(target, exist_ok=True)
adapter = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK, "lora_dropout": 0.0, "bias": "none", "target_modules": list(widths)}
with open(os.path.join(target, "adapter_config.json"), "w") as file:
    json.dump(adapter, file)
weights = {}
for layer in range(model.num_hidden_layers):
    for name, width in widths.items():
        path = f"base_model.model.model.layers.{layer}.self_attn.{name}"
        weights[f"{path}.lora_A.weight"] = torch.randn(RANK, model.hidden_size) / 16
        weights[f"{path}.lora_B.weight"] = torch.randn(width, RANK)
save_file(weights, os.path.join(target, "adapter_model.safetensors"))
