"""LangChain's standard tests of embeddings (PyPI langchain-tests), for its unchanged client of OpenAI."""
from langchain_openai import OpenAIEmbeddings
from langchain_tests.integration_tests.embeddings import EmbeddingsIntegrationTests


class TestOpenAIStandard(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self):
        return OpenAIEmbeddings

    @property
    def embedding_model_params(self):
        return {"model": "text-embedding-3-small", "dimensions": 128}
