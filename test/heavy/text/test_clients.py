"""Client programs as their authors publish them, against a served model of the backend `text`."""
import asyncio
import base64

import cohere
import httpx
import numpy as np
import openai
import pytest
from langchain_openai import OpenAIEmbeddings
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference as TeiRerank

QUERY = "What is the capital of France?"
DOCUMENTS = ["Paris is the capital of France.", "Bread is made of flour.", "The Seine flows through Paris.", "Lyon is a city."]


def cosine(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.fixture(scope="module")
def client(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)


@pytest.fixture(scope="module")
def wanted(client, texts):
    """Vectors of texts that were sent as text, one by one, as lists."""
    rows = [client.embeddings.create(input=text, model="minilm", encoding_format="float") for text in texts]
    return np.array([row.data[0].embedding for row in rows], np.float32)


def test_openai_gets_equal_vectors_as_base64_and_lists_and_the_number_of_tokens(client, texts, wanted):
    assert wanted.shape == (6, 384)
    assert np.abs(np.linalg.norm(wanted, axis=1) - 1).max() < 1e-5
    for form in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        answer = client.embeddings.create(input=texts, model="text-embedding-3-small", **form)
        assert [row.index for row in answer.data] == list(range(6))
        rows = [row.embedding if isinstance(row.embedding, list) else np.frombuffer(base64.b64decode(row.embedding), "<f4")
                for row in answer.data]
        assert np.abs(np.array(rows, np.float32) - wanted).max() < 1e-5, form
        assert (answer.object, answer.model) == ("list", "text-embedding-3-small")
        # 12 is what Triton's oracle says of the first text; the empty text is [CLS] [SEP]; the last one is cut at 256.
        alone = [client.embeddings.create(input=text, model="minilm").usage.prompt_tokens for text in texts]
        assert (alone[0], alone[2], alone[4], alone[5]) == (12, 2, 3, 256)
        assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(alone)


def test_openai_async_sends_many_requests_at_once(url, texts, wanted):
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any") as client:
            return await asyncio.gather(*[
                client.embeddings.create(input=texts[i % 6], model="minilm") for i in range(64)
            ])

    for i, answer in enumerate(asyncio.run(all_of_them())):
        assert np.abs(np.array(answer.data[0].embedding, np.float32) - wanted[i % 6]).max() < 1e-5


def test_openai_raises_its_own_errors(client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.embeddings.create(input="a", model="unknown")
    assert (unknown.value.code, unknown.value.status_code) == ("model_not_found", 404)
    assert "unknown" in unknown.value.message
    assert unknown.value.request_id
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(input=[], model="minilm")
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(input="a", model="minilm", dimensions=385)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("unknown")


def test_openai_lists_and_retrieves_models_by_their_names_and_aliases(client):
    ids = {model.id for model in client.models.list()}
    assert {"minilm", "reranker", "classifier", "text-embedding-3-small"} <= ids
    for name in ("minilm", "text-embedding-3-small"):
        model = client.models.retrieve(name)
        assert (model.id, model.object) == (name, "model")


def test_openai_cuts_vectors_to_dimensions_and_normalises_them_again(client, texts, wanted):
    answer = client.embeddings.create(input=texts, model="minilm", dimensions=10)
    rows = np.array([row.embedding for row in answer.data], np.float32)
    cut = wanted[:, :10] / np.linalg.norm(wanted[:, :10], axis=1, keepdims=True)
    assert rows.shape == (6, 10)
    assert np.abs(rows - cut).max() < 1e-5


def test_langchain_unconfigured_sends_cl100k_ids_and_gets_the_vectors_of_the_texts(url, texts, wanted):
    # LangChain leaves an empty text out before it sends, and answers with what it gets for one alone.
    shown = [0, 1, 3, 4, 5]
    rows = OpenAIEmbeddings(base_url=f"{url}/v1", api_key="any").embed_documents([texts[i] for i in shown])
    for i, row in zip(shown, rows):
        assert cosine(row, wanted[i]) >= 0.9999, texts[i][:40]


def test_langchain_unconfigured_is_refused_by_a_model_whose_ids_nothing_declares(url):
    with pytest.raises(openai.BadRequestError, match="cl100k_base"):
        OpenAIEmbeddings(base_url=f"{url}/v1", api_key="any", model="minilm", tiktoken_model_name="gpt-4").embed_query("a text")


def test_langchain_configured_to_send_texts(url, texts, wanted):
    rows = OpenAIEmbeddings(base_url=f"{url}/v1", api_key="any", model="minilm", check_embedding_ctx_length=False).embed_documents(texts)
    assert np.abs(np.array(rows) - wanted).max() < 1e-5


def test_cohere_embeds(url, texts, wanted):
    client = cohere.ClientV2(api_key="any", base_url=url)
    answer = client.embed(model="minilm", input_type="search_document", texts=texts, embedding_types=["float"], truncate="END")
    assert np.abs(np.array(answer.embeddings.float_) - wanted).max() < 1e-5
    both = client.embed(model="minilm", input_type="search_query", texts=texts[:1], embedding_types=["float", "base64"])
    assert np.abs(np.frombuffer(base64.b64decode(both.embeddings.base64[0]), "<f4") - wanted[0]).max() < 1e-5
    with pytest.raises(cohere.BadRequestError):
        client.embed(model="minilm", input_type="search_document", texts=texts[5:], embedding_types=["float"], truncate="NONE")
    with pytest.raises(cohere.BadRequestError):
        client.embed(model="minilm", input_type="search_document", texts=texts, embedding_types=["int8"])


def scores(url):
    answer = httpx.post(f"{url}/v1/rerank", json={"model": "reranker", "query": QUERY, "documents": DOCUMENTS}).json()
    return {row["index"]: row["relevance_score"] for row in answer["results"]}


def test_cohere_reranks(url):
    client = cohere.ClientV2(api_key="any", base_url=url)
    answer = client.rerank(model="reranker", query=QUERY, documents=DOCUMENTS, top_n=3)
    by_score = sorted(scores(url).items(), key=lambda pair: -pair[1])
    assert [row.index for row in answer.results] == [index for index, _ in by_score][:3]
    assert np.allclose([row.relevance_score for row in answer.results], [score for _, score in by_score][:3], atol=1e-5)


def test_llama_index_embeds(url, texts, wanted):
    # The server has two models that embed, and TEI's routes name none.
    model = TextEmbeddingsInference(
        base_url=url, endpoint="/embed?model=minilm", model_name="minilm", text_instruction=" ", query_instruction=" ", truncate_text=True,
    )
    rows = model.get_text_embedding_batch([texts[i] for i in (0, 1, 4, 5)])
    assert np.abs(np.array(rows) - wanted[[0, 1, 4, 5]]).max() < 1e-5
    assert np.abs(np.array(model.get_query_embedding(texts[0])) - wanted[0]).max() < 1e-5
    asynchronous = asyncio.run(model.aget_text_embedding_batch([texts[0]]))
    assert np.abs(np.array(asynchronous[0]) - wanted[0]).max() < 1e-5


def test_llama_index_reranks(url):
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in DOCUMENTS]
    ranked = TeiRerank(base_url=url, top_n=4).postprocess_nodes(nodes, QueryBundle(QUERY))
    want = scores(url)
    assert [node.node.text for node in ranked] == [DOCUMENTS[i] for i in sorted(want, key=lambda i: -want[i])]
    assert np.allclose([node.score for node in ranked], sorted(want.values(), reverse=True), atol=1e-5)


def test_open_webui_reranks(url):
    # Its program is not a package: this is the request that its external reranker makes.
    answer = httpx.post(f"{url}/v1/rerank", headers={"Authorization": "Bearer any", "X-OpenWebUI-User-Name": "a"},
                        json={"model": "reranker", "query": QUERY, "documents": DOCUMENTS, "top_n": len(DOCUMENTS)})
    answer.raise_for_status()
    results = sorted(answer.json()["results"], key=lambda row: row["index"])
    want = scores(url)
    assert np.allclose([row["relevance_score"] for row in results], [want[i] for i in range(4)], atol=1e-5)


def test_litellm_through_both_of_its_providers(url, texts, wanted):
    import litellm

    answer = litellm.embedding(model="openai/minilm", input=texts[:2], api_base=f"{url}/v1", api_key="any")
    assert np.abs(np.array([row["embedding"] for row in answer.data]) - wanted[:2]).max() < 1e-5
    answer = litellm.embedding(model="triton/minilm_triton", input=texts[:2], api_base=f"{url}/v2/models/minilm_triton/infer")
    assert np.abs(np.array([row["embedding"] for row in answer.data]) - wanted[:2]).max() < 1e-5
