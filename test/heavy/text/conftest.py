"""Addresses of the servers that test/heavy/text.mjs starts, and texts."""
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

# LangChain's tiktoken would download its ranks; litellm has them in its package.
RANKS = Path(find_spec("litellm").origin).parent / "litellm_core_utils" / "tokenizers"
os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(RANKS))
# litellm would download prices.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

#: `minilm` (trained, with aliases), `reranker` and `classifier` (random weights), and LiteLLM's form of minilm.
URL = os.environ.get("NEREID_TEXT_URL", "")


@pytest.fixture(scope="session")
def url():
    return URL


@pytest.fixture(scope="session")
def texts():
    return [
        "The food was delicious and the waiter...",
        "Ein Text auf Deutsch, mit Umlauten: äöü.",
        "",
        "短い文。",
        "short",
        "a text that is cut, because it is longer than the model takes " * 40,
    ]
