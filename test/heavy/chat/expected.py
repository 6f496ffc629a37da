"""What transformers generates: `python expected.py FILE.gguf TOKENS < prompts.json` prints a JSON list."""
import json
import os
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

# All threads wait for the slowest: with other work on a core, one thread less is many times as fast.
torch.set_num_threads(max(1, os.cpu_count() - 1))
path, tokens = Path(sys.argv[1]), int(sys.argv[2])
where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
tokenizer = AutoTokenizer.from_pretrained(**where)
model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
answers = []
for prompt in json.load(sys.stdin):
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    made = model.generate(ids, do_sample=False, max_new_tokens=tokens)[0, ids.shape[1]:]
    text = tokenizer.decode(made, skip_special_tokens=True)
    answers.append({"text": text, "input": ids.shape[1], "output": len(made)})
print(json.dumps(answers))
