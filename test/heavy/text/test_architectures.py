"""Rows of BERT, RoBERTa, DistilBERT, XLM-R, MPNet and a cross-encoder with random weights, beside sentence-transformers."""
import json
import os
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

with open(os.environ["NEREID_TEXT_ARCHITECTURES"]) as file:
    WANTED = json.load(file)


@pytest.mark.parametrize("name", WANTED["rows"])
def test_rows_alone_and_in_batches_are_those_of_sentence_transformers(url, name):
    texts, wanted = WANTED["texts"], np.array(WANTED["rows"][name])

    def ask(some):
        with httpx.Client(timeout=120) as client:
            fields = client.get(f"{url}/v2/models/{name}").json()["inputs"][0]
            pairs = [[texts[0], texts[i]] if fields["shape"][1] == 2 else [texts[i]] for i in some]
            sent = {"name": fields["name"], "datatype": "BYTES", "shape": [len(some), len(pairs[0])], "data": pairs}
            answer = client.post(f"{url}/v2/models/{name}/infer", json={"inputs": [sent]})
            assert answer.status_code == 200, answer.text
            (output,) = answer.json()["outputs"]
            assert (output["datatype"], output["shape"]) == ("FP32", [len(some), wanted.shape[1]])
            return some, np.array(output["data"]).reshape(output["shape"])

    everything = list(range(len(texts)))
    asked = [everything, everything[::-1], *([i] for i in everything)] * 3
    with ThreadPoolExecutor(8) as pool:
        for some, rows in pool.map(ask, asked):
            assert np.abs(rows - wanted[some]).max() < 1e-5
