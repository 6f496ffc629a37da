"""In the place of Triton's own conftest.py: the same fixtures, over a server of this project and language models that need no weights."""
import os
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from tests.utils import OpenAIServer, setup_fastapi_app, setup_server

BACKEND = os.environ["TEST_BACKEND"]
PARSER = os.environ.get("TEST_TOOL_CALL_PARSER", "llama3")
MODELS = {
    ("vllm", "llama3"): ("vllm_models", "llama-3.1-8b-instruct"),
    ("vllm", "mistral"): ("vllm_mistral_models", "mistral-nemo-instruct-2407"),
    ("tensorrtllm", "llama3"): ("tensorrtllm_models", "tensorrt_llm_bls"),
    ("tensorrtllm", "mistral"): ("tensorrtllm_mistral_models", "tensorrt_llm_bls"),
}
REPOSITORY, MODEL = MODELS[BACKEND, PARSER]


def pytest_configure(config):
    config.addinivalue_line("markers", "openai: starts a server with flags of Triton's front end")


def fixture(name, value):
    return pytest.fixture(scope="session", name=name)(lambda: value)


tool_call_parser = fixture("tool_call_parser", PARSER)
backend = fixture("backend", BACKEND)
model = fixture("model", MODEL)
model_repository = fixture("model_repository", str(Path(__file__).parent / REPOSITORY))
tokenizer_model = fixture("tokenizer_model", os.environ["TEST_TOKENIZER"])
prompt = fixture("prompt", "What is machine learning?")
input = fixture("input", "What is machine learning?")
messages = fixture("messages", [{"role": "user", "content": "What is machine learning?"}])


@pytest.fixture(scope="module")
def server(model_repository, tokenizer_model, backend, tool_call_parser):
    flags = {"model-repository": model_repository, "tokenizer": tokenizer_model, "backend": backend, "tool-call-parser": tool_call_parser}
    with OpenAIServer([word for name, value in flags.items() for word in (f"--{name}", value)]) as one:
        yield one


@pytest.fixture(scope="class")
def fastapi_client_class_scope(model_repository, tokenizer_model, backend):
    server = setup_server(model_repository)
    with TestClient(setup_fastapi_app(tokenizer_model, server, backend)) as client:
        yield client
    server.stop()
