"""Writes a Llama of random weights, 256 wide and of 2 layers, with a BPE tokenizer of 500 tokens: `python vllm_tiny.py
DIRECTORY`. Real vLLM serves it on a CPU; what it writes means nothing."""
import sys

from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

target = sys.argv[1]
tokenizer = ByteLevelBPETokenizer()
text = open(__file__).read() + " ".join(f'{{"name": "tensor {n}", "size": {n * n}}}' for n in range(500))
tokenizer.train_from_iterator([text] * 4, vocab_size=500, special_tokens=["<s>", "</s>"])
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, bos_token="<s>", eos_token="</s>")
fast.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
fast.save_pretrained(target)
config = LlamaConfig(
    vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=4, max_position_embeddings=512, bos_token_id=0, eos_token_id=1,
)  # fmt: skip
LlamaForCausalLM(config).save_pretrained(target)
