"""The server that test/heavy/chat.mjs starts, and its models."""
import os
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

# litellm would download prices, and LangChain's tiktoken its ranks, which litellm has in its package.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(Path(find_spec("litellm").origin).parent / "litellm_core_utils" / "tokenizers"))

URL = os.environ["NEREID_TEST_CHAT_URL"]
REPOSITORY = Path(os.environ["NEREID_TEST_CHAT_REPOSITORY"])
#: A Python model with tensors of its own, one in TypeScript, and one of the backend `vllm`.
MODELS = ["python_words", "typescript_words", "vllm_words"]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "state": {"type": "string"}, "unit": {"type": "string"}},
            "required": ["city", "state", "unit"],
        },
    },
}
ARGUMENTS = {"city": "Dallas", "state": "TX", "unit": "fahrenheit"}


@pytest.fixture(scope="session")
def url():
    return URL


@pytest.fixture(params=MODELS)
def model(request):
    return request.param


@pytest.fixture
def cancelled():
    """Waits until the journal of a model has a line more than when the test began."""

    def lines(name):
        path = REPOSITORY / name / "1" / "journal"
        return path.read_text().splitlines() if path.exists() else []

    before = {name: len(lines(name)) for name in MODELS}

    def wait(name):
        end = time.monotonic() + 10
        while len(lines(name)) == before[name]:
            assert time.monotonic() < end, f"{name} was not cancelled within 10 s"
            time.sleep(0.01)
        return lines(name)[-1]

    return wait
