"""Writes `tiny` beside this file: a random Llama as examples/chat-ts reads it, and what transformers generates with it.

`python tiny.py`, with torch, transformers, onnx and onnxscript. Its answers are noise, whose bytes are often no UTF-8.
"""
import importlib.util
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).parent
EXPORT = HERE.parents[2] / "examples/chat-ts/export.py"
PROMPTS = ["the wind", "a cold night, á 日本", "snow", "rain and snow", "the sea the sea", "x", "!?", "on the"]
TOKENS = 60


def write(directory):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = byte_level, decoders.ByteLevel()
    special = {"special_tokens": ["<s>", "</s>"], "initial_alphabet": byte_level.alphabet()}
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False, **special)
    tokenizer.train_from_iterator(["the wind and the rain in the snow, a cold night on the sea"] * 4, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(directory)
    torch.manual_seed(3)
    # A long context costs no weights, and leaves time to cancel. Wide weights make clear differences between logits.
    config = LlamaConfig(vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=8192, bos_token_id=0,
                         eos_token_id=1, tie_word_embeddings=True, initializer_range=0.4)
    LlamaForCausalLM(config).save_pretrained(directory)


def answers(directory):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        made = model.generate(ids, do_sample=False, max_new_tokens=TOKENS)[0, ids.shape[1]:].tolist()
        yield {"prompt": prompt, "ids": ids[0].tolist(), "made": made,
               "text": tokenizer.decode(made, skip_special_tokens=True), "reason": "stop" if made[-1] == 1 else "length"}


if __name__ == "__main__":
    spec = importlib.util.spec_from_file_location("export", EXPORT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with TemporaryDirectory() as source:
        write(source)
        module.main(source, HERE / "tiny")
        lines = ",\n".join(json.dumps(answer) for answer in answers(source))
    (HERE / "tiny/answers.json").write_text(f"[\n{lines}\n]\n")
