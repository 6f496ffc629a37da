from .._engine import LLM, RequestOutput, SamplingParams

__all__ = ["LLM", "RequestOutput", "SamplingParams"]
