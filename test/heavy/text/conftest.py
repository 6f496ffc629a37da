"""Addresses of the servers that test/heavy/text.mjs starts, and texts."""
import os

import pytest

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
