from .._engine import LLM, RequestOutput

__all__ = ["LLM", "RequestOutput"]
