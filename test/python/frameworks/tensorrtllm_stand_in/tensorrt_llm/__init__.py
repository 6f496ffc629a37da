"""Stand-in for the package tensorrt_llm, for tests of models that use its LLM API: the names that they import, over an
engine that writes words.

It is not TensorRT-LLM and computes nothing: the answer to a prompt is ` t0 t1 t2 …`. It has the arguments that these
models use. `model` is a directory: the engine appends its events to the file `journal` there, and fails to start with
the text of the file `broken`.
"""
from ._engine import LLM, SamplingParams

__all__ = ["LLM", "SamplingParams"]
__version__ = "0.0.0+stand.in"
