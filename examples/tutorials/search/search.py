"""Finds sentences by their meaning: `search.py ADDRESS` writes index.npy, `search.py ADDRESS QUERY` searches it."""
import sys
import time

import numpy as np
from openai import OpenAI

with open("sentences.txt", encoding="utf-8") as file:
    SENTENCES = file.read().splitlines()


def embedder(address):
    """A function from texts to their embeddings, one a row."""
    client = OpenAI(base_url=f"http://{address}/v1", api_key="none")

    def embed(texts):
        response = client.embeddings.create(model="all-MiniLM-L6-v2", input=texts)
        return np.array([item.embedding for item in response.data], np.float32)

    return embed


def find(embed, index, query, count=3):
    """The sentences nearest to the query, each with its score."""
    # The embeddings have length 1, so the product of two is the cosine of their angle.
    scores = index @ embed([query])[0]
    return [(scores[row], SENTENCES[row]) for row in np.argsort(-scores)[:count]]


if __name__ == "__main__":
    address, *query = sys.argv[1:]
    embed = embedder(address)
    start = time.perf_counter()
    if query:
        for score, sentence in find(embed, np.load("index.npy"), *query):
            print(f"{score:.1f} {sentence}")
    else:
        index = embed(SENTENCES)
        np.save("index.npy", index)
        print(f"{len(index)} sentences, {index.shape[1]} numbers each")
    print(f"{(time.perf_counter() - start) * 1000:.0f} ms", file=sys.stderr)
