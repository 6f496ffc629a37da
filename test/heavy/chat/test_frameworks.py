"""LangChain and LiteLLM as published, against language models of three kinds."""
import json

import litellm
import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI

from conftest import ARGUMENTS, TOOL

WEATHER = "What is the weather in Dallas, Texas in Fahrenheit?"


def chat(url, model, **more):
    return ChatOpenAI(base_url=f"{url}/v1", api_key="any", model=model, max_retries=0, **{"max_tokens": 12, "temperature": 0, "seed": 1, **more})


def test_langchain_invokes_and_streams(url, model):
    llm = chat(url, model, stream_usage=True)
    whole = llm.invoke("Say hello")
    assert len(whole.content.split()) == 12
    assert whole.usage_metadata["output_tokens"] == 12
    chunks = list(llm.stream("Say hello"))
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    assert total.content == whole.content and sum(bool(chunk.content) for chunk in chunks) == 12
    assert total.usage_metadata["output_tokens"] == 12
    assert total.response_metadata["finish_reason"] == whole.response_metadata["finish_reason"]


def test_langchain_completes_prompts(url, model):
    llm = OpenAI(base_url=f"{url}/v1", api_key="any", model=model, max_retries=0, max_tokens=12, temperature=0, seed=1)
    whole = llm.invoke("Once")
    assert len(whole.split()) == 12
    assert "".join(llm.stream("Once")) == whole


def test_langchain_binds_tools(url, model):
    llm = chat(url, model, max_tokens=128).bind_tools([TOOL])
    question = HumanMessage(WEATHER)
    whole = llm.invoke([question])
    (call,) = whole.tool_calls
    assert (call["name"], call["args"]) == ("get_current_weather", ARGUMENTS)
    total = None
    for chunk in llm.stream([question]):
        total = chunk if total is None else total + chunk
    assert [(one["name"], one["args"]) for one in total.tool_calls] == [("get_current_weather", ARGUMENTS)]
    answer = llm.invoke([question, whole, ToolMessage("98", tool_call_id=call["id"])])
    assert isinstance(answer, AIMessage) and answer.content and not answer.tool_calls


def test_langchain_raises_the_errors_of_openai(url):
    with pytest.raises(openai.NotFoundError):
        chat(url, "unknown").invoke("a")
    with pytest.raises(openai.BadRequestError):
        chat(url, "python_words", temperature=3).invoke("a")


def lite(url, model, **more):
    return {"model": f"openai/{model}", "api_base": f"{url}/v1", "api_key": "any", "num_retries": 0, **{"max_tokens": 12, "temperature": 0, "seed": 1, **more}}


def test_litellm_completes_and_streams(url, model):
    messages = [{"role": "user", "content": "Say hello"}]
    whole = litellm.completion(messages=messages, **lite(url, model))
    text = whole.choices[0].message.content
    assert len(text.split()) == 12 and whole.usage.completion_tokens == 12
    chunks = list(litellm.completion(messages=messages, stream=True, stream_options={"include_usage": True}, **lite(url, model)))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
    (usage,) = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
    assert usage.completion_tokens == 12
    prompted = litellm.text_completion(prompt="Once", **{**lite(url, model), "model": f"text-completion-openai/{model}"})
    assert len(prompted.choices[0].text.split()) == 12


def test_litellm_calls_tools(url, model):
    ask = {"messages": [{"role": "user", "content": WEATHER}], "tools": [TOOL], **lite(url, model, max_tokens=128)}
    (call,) = litellm.completion(**ask).choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_current_weather", ARGUMENTS)
    chunks = list(litellm.completion(stream=True, **ask))
    (call,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_current_weather", ARGUMENTS)


def test_litellm_raises_its_errors(url):
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(messages=[{"role": "user", "content": "a"}], **lite(url, "unknown"))
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(messages=[], **lite(url, "python_words"))
