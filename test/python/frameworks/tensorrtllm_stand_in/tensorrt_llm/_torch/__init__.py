"""The PyTorch backend of the LLM API."""
