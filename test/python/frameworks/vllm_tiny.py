"""Writes a Llama of random weights, 256 wide and of 2 layers, with a BPE tokenizer of 500 tokens and a chat template: `python vllm_tiny.py DIRECTORY`. Real vLLM serves it on a
CPU; what it writes means nothing, but it is the same each time."""
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

#: As in Llama 3, the template writes the token that begins a text, and the tokenizer adds one to every text.
TEMPLATE = (
    "{{ bos_token }}{% if tools %}tools: {{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}</s>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

target = sys.argv[1]
torch.manual_seed(0)
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)])
# Only bytes of this text are tokens, so that few answers end within a character.
text = " ".join([open(__file__).read(), "“雪”", *(f'{{"name": "tensor {n}", "size": {n * n}}}' for n in range(500))])
tokenizer.train_from_iterator([text] * 4, trainers.BpeTrainer(vocab_size=500, special_tokens=["<s>", "</s>"], show_progress=False))
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
fast.chat_template = TEMPLATE
fast.save_pretrained(target)
config = LlamaConfig(
    vocab_size=len(fast), hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=4, max_position_embeddings=4096, bos_token_id=0, eos_token_id=1, initializer_range=0.1,
)  # fmt: skip
LlamaForCausalLM(config).save_pretrained(target)
