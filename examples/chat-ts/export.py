"""Writes a language model for the example chat-ts: `python export.py SOURCE DIRECTORY`.

SOURCE is a folder of Hugging Face or a file of llama.cpp (.gguf). DIRECTORY gets model.onnx in the layout of optimum
(input_ids, attention_mask, position_ids, past_key_values.N.key and .value; logits, present.N.key and .value), the
tokenizer and the generation settings. Nothing is downloaded.
"""
import sys
import warnings
from pathlib import Path

import onnx
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

PAST = "past_key_values.{}.{}"
PRESENT = "present.{}.{}"


class Decoder(torch.nn.Module):
    """One step with the cache as plain tensors [batch, heads, tokens, head size], key and value of each layer."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, past):
        cache = DynamicCache()
        for layer, (key, value) in enumerate(zip(past[::2], past[1::2])):
            cache.update(key, value, layer)
        # Only the logits of the last token choose the next one; a long prompt would copy a row per token for nothing.
        result = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
                            past_key_values=cache, use_cache=True, logits_to_keep=1)
        return result.logits, [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def names(pattern, layers):
    return [pattern.format(layer, part) for layer in range(layers) for part in ("key", "value")]


def export(model, path):
    """Exports a causal model of transformers in evaluation mode, float32."""
    config = model.config
    layers, heads = config.num_hidden_layers, config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    # Sizes above 1 that differ, so that the exporter takes each for a size of its own.
    batch, tokens, past = 2, 3, 5
    ids = torch.ones(batch, tokens, dtype=torch.int64)
    mask = torch.ones(batch, past + tokens, dtype=torch.int64)
    positions = torch.arange(past, past + tokens).expand(batch, tokens)
    caches = [torch.zeros(batch, heads, past, size) for _ in range(2 * layers)]
    auto = torch.export.Dim.DYNAMIC
    shapes = ({0: auto, 1: auto}, {0: auto, 1: auto}, {0: auto, 1: auto}, [{0: auto, 2: auto}] * len(caches))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Decoder(model), (ids, mask, positions, caches), path, dynamo=True, external_data=False, verbose=False,
            dynamic_shapes=shapes, input_names=["input_ids", "attention_mask", "position_ids", *names(PAST, layers)],
            output_names=["logits", *names(PRESENT, layers)],
        )
    strip(path)


def strip(path):
    """Removes what only people who debug the exporter read: the Python lines of each node, most of a small file."""
    content = onnx.load(path)
    for holder in (content, content.graph, *content.graph.node, *content.graph.initializer, *content.graph.input, *content.graph.output):
        del holder.metadata_props[:]
    del content.graph.value_info[:]
    onnx.save(content, path)


def main(source, directory):
    source, directory = Path(source), Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    where = {"pretrained_model_name_or_path": str(source), "local_files_only": True}
    if source.suffix == ".gguf":
        where |= {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, attn_implementation="eager").eval()
    export(model, directory / "model.onnx")
    AutoTokenizer.from_pretrained(**where).save_pretrained(directory)
    model.config.save_pretrained(directory)
    model.generation_config.save_pretrained(directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
