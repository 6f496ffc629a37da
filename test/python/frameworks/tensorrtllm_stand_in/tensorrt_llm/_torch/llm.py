from .._engine import LLM

__all__ = ["LLM"]
