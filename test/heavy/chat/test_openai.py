"""openai-python as published, against language models of three kinds."""
import asyncio
import json

import openai
import pytest

from conftest import ARGUMENTS, TOOL

HELLO = [{"role": "user", "content": "Say hello"}]
WEATHER = [{"role": "user", "content": "What is the weather in Dallas, Texas in Fahrenheit?"}]


@pytest.fixture(scope="module")
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as one:
        yield one


def exact(**more):
    """Of a request that is answered with the same text each time."""
    return {"temperature": 0, "seed": 1, "max_tokens": 12, **more}


def test_models_are_listed_and_retrieved(client, model):
    assert model in {one.id for one in client.models.list()}
    one = client.models.retrieve(model)
    assert (one.id, one.object) == (model, "model")
    assert one.created > 1_600_000_000
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("unknown")


def test_a_chat_is_answered_whole_and_in_pieces_with_the_same_text_and_usage(client, model):
    whole = client.chat.completions.create(model=model, messages=HELLO, **exact())
    (choice,) = whole.choices
    assert (whole.object, whole.model, choice.index, choice.message.role) == ("chat.completion", model, 0, "assistant")
    assert len(choice.message.content.split()) == 12
    assert choice.message.tool_calls is None
    assert whole.usage.completion_tokens == 12 and whole.usage.prompt_tokens > 0
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 12

    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = client.chat.completions.create(model=model, messages=HELLO, **exact(**options))
    assert {chunk.id for chunk in [*chunks, last]} == {chunks[0].id}
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == choice.message.content
    assert sum(bool(chunk.choices[0].delta.content) for chunk in chunks) == 12
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons[-1] == choice.finish_reason and set(reasons[:-1]) == {None}
    assert last.choices == [] and last.usage.model_dump() == whole.usage.model_dump()
    assert all(chunk.usage is None for chunk in chunks)

    without = list(client.chat.completions.create(model=model, messages=HELLO, **exact(stream=True)))
    assert len(without) == len(chunks) and all(chunk.usage is None for chunk in without)


def test_a_model_that_names_its_reason_is_quoted(client):
    for model in ("python_words", "typescript_words"):
        assert client.chat.completions.create(model=model, messages=HELLO, **exact()).choices[0].finish_reason == "length"


def test_a_prompt_is_completed_whole_and_in_pieces(client, model):
    whole = client.completions.create(model=model, prompt="Once", **exact())
    (choice,) = whole.choices
    assert (whole.object, whole.model, choice.index) == ("text_completion", model, 0)
    assert len(choice.text.split()) == 12 and not choice.text.startswith("Once")
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = client.completions.create(model=model, prompt="Once", **exact(**options))
    assert "".join(chunk.choices[0].text for chunk in chunks) == choice.text
    assert chunks[-1].choices[0].finish_reason == choice.finish_reason
    assert last.choices == [] and last.usage.model_dump() == whole.usage.model_dump()


def test_max_completion_tokens_wins(client, model):
    answer = client.chat.completions.create(model=model, messages=HELLO, max_tokens=9, max_completion_tokens=2)
    assert answer.usage.completion_tokens == 2


@pytest.mark.parametrize("stop", ["word3", ["nothing", "word3"]])
def test_a_stop_string_ends_the_text_and_is_not_in_it(client, stop):
    ask = {"model": "typescript_words", "messages": HELLO, "max_tokens": 9, "stop": stop}
    whole = client.chat.completions.create(**ask).choices[0]
    assert (whole.message.content.strip(), whole.finish_reason) == ("word0 word1 word2", "stop")
    pieces = [chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**ask, stream=True)]
    assert "".join(pieces).strip() == "word0 word1 word2"


def test_two_choices_have_indices_and_one_usage(client, model):
    ask = {"model": model, "messages": HELLO, "max_tokens": 5, "n": 2}
    answer = client.chat.completions.create(**ask)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(len(choice.message.content.split()) == 5 for choice in answer.choices)
    assert answer.usage.completion_tokens == 10
    texts = {0: "", 1: ""}
    reasons = {}
    for chunk in client.chat.completions.create(**ask, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons.update({choice.index: choice.finish_reason} if choice.finish_reason else {})
    assert [len(text.split()) for text in texts.values()] == [5, 5] and set(reasons) == {0, 1}
    assert [choice.index for choice in client.completions.create(model=model, prompt="Once", n=2).choices] == [0, 1]


def test_a_tool_is_called_whole_and_in_pieces(client, model):
    ask = {"model": model, "messages": WEATHER, "tools": [TOOL], "max_tokens": 128}
    whole = client.chat.completions.create(**ask).choices[0]
    assert whole.finish_reason == "tool_calls"
    (call,) = whole.message.tool_calls
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == ("function", "get_current_weather", ARGUMENTS)
    name, arguments, ids, pieces = "", "", set(), 0
    for chunk in client.chat.completions.create(**ask, stream=True):
        for part in chunk.choices[0].delta.tool_calls or []:
            assert part.index == 0
            ids |= {part.id} if part.id else set()
            name += part.function.name or ""
            arguments += part.function.arguments or ""
            pieces += 1
        reason = chunk.choices[0].finish_reason
    assert (name, json.loads(arguments), len(ids), reason) == ("get_current_weather", ARGUMENTS, 1, "tool_calls")
    assert pieces > 2, "the arguments come in pieces"

    # The accumulator of the package itself.
    with client.chat.completions.stream(**ask) as stream:
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == ARGUMENTS

    result = [*WEATHER, whole.message, {"role": "tool", "tool_call_id": call.id, "content": "98"}]
    answer = client.chat.completions.create(**{**ask, "messages": result}).choices[0]
    assert answer.message.tool_calls is None and answer.message.content and answer.finish_reason != "tool_calls"


def test_a_response_is_made_whole_and_in_events_with_the_text_of_a_chat(client, model):
    ask = {"model": model, "instructions": "Be short", "input": "Say hello", "temperature": 0, "max_output_tokens": 12, "extra_body": {"seed": 1}}
    whole = client.responses.create(**ask)
    type(whole).model_validate(whole.model_dump(warnings="error"), strict=True)
    chat = client.chat.completions.create(model=model, messages=[{"role": "system", "content": "Be short"}, *HELLO], **exact())
    assert whole.output_text == chat.choices[0].message.content
    usage = chat.usage
    assert (whole.usage.input_tokens, whole.usage.output_tokens, whole.usage.total_tokens) == (usage.prompt_tokens, 12, usage.total_tokens)
    assert whole.status == ("incomplete" if chat.choices[0].finish_reason == "length" else "completed")
    assert (whole.store, whole.instructions, whole.tool_choice, whole.tools) == (False, "Be short", "auto", [])

    events = list(client.responses.create(**ask, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:4]] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text and len(deltas) == 12
    last = events[-1]
    assert last.type == f"response.{whole.status}"
    assert (last.response.output_text, last.response.usage) == (whole.output_text, whole.usage)


def test_a_response_calls_a_tool_whose_output_is_sent_back(client, model):
    tool = {"type": "function", **TOOL["function"]}
    ask = {"model": model, "input": WEATHER, "tools": [tool], "max_output_tokens": 128}
    whole = client.responses.create(**ask)
    (call,) = whole.output
    assert (call.type, call.name, json.loads(call.arguments), whole.status) == ("function_call", "get_current_weather", ARGUMENTS, "completed")
    # The accumulator of the package itself.
    with client.responses.stream(**ask) as stream:
        events = list(stream)
        (same,) = stream.get_final_response().output
    assert (same.name, same.arguments) == (call.name, call.arguments)
    assert sum(event.type == "response.function_call_arguments.delta" for event in events) > 2, "the arguments come in pieces"

    result = {"type": "function_call_output", "call_id": call.call_id, "output": "98"}
    answer = client.responses.create(**{**ask, "input": [*WEATHER, *whole.output, result]})
    assert [item.type for item in answer.output] == ["message"] and answer.output_text


def test_a_response_without_what_is_stored_elsewhere(client, model):
    for more in (
        {"previous_response_id": "resp_1"},
        {"background": True},
        {"include": ["reasoning.encrypted_content"]},
        {"tools": [{"type": "web_search"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://a/b.png", "detail": "auto"}]}]},
    ):
        with pytest.raises(openai.BadRequestError) as error:
            client.responses.create(**{"model": model, "input": "a", **more})
        assert error.value.param in more, more


def test_forms_of_messages(client, model):
    parts = [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello"}]
    for messages in (
        [{"role": "developer", "content": "Be short"}, {"role": "user", "content": parts}],
        [{"role": "system", "content": parts}, {"role": "user", "content": "Hello", "name": "Ann"}],
        [*HELLO, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Again, with “quotes”, {braces} and \u0000 zero: 雪"}],
    ):
        assert client.chat.completions.create(model=model, messages=messages, max_tokens=3).choices[0].message.content


def test_fields_that_have_no_effect_are_accepted(client, model):
    extra = {"user": "a", "metadata": {"a": "b"}, "store": False, "service_tier": "auto", "parallel_tool_calls": True, "logprobs": False}
    assert client.chat.completions.create(model=model, messages=HELLO, max_tokens=3, **extra).choices[0].message.content


def test_errors_have_their_kinds(client, model):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="unknown", messages=HELLO)
    assert (unknown.value.status_code, unknown.value.code) == (404, "model_not_found")
    assert "unknown" in unknown.value.message and unknown.value.request_id
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="unknown", prompt="a")
    for wrong in (
        {"messages": []},
        {"temperature": 3},
        {"max_tokens": -1},
        {"stream_options": {"include_usage": True}},
        {"messages": [{"role": "nobody", "content": "a"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b.png"}}]}]},
    ):
        with pytest.raises(openai.BadRequestError) as error:
            client.chat.completions.create(**{"model": model, "messages": HELLO, **wrong})
        assert error.value.body["type"] == "invalid_request_error", wrong
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=model, prompt="")


@pytest.mark.parametrize("name", ["python_words", "typescript_words"])
def test_the_end_of_a_stream_cancels_the_request_of_the_model(client, cancelled, name):
    ask = {"model": name, "messages": [{"role": "user", "content": "slowly"}], "max_tokens": 500, "stream": True}
    with client.chat.completions.create(**ask) as stream:
        for _, _ in zip(range(4), stream):
            pass
    assert int(cancelled(name).split()[-1]) < 100


@pytest.mark.parametrize("name", ["python_words", "typescript_words"])
def test_a_client_that_goes_away_before_the_answer_cancels_the_request_of_the_model(url, cancelled, name):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=0.3) as impatient:
        with pytest.raises(openai.APITimeoutError):
            impatient.chat.completions.create(model=name, messages=[{"role": "user", "content": "slowly"}], max_tokens=500)
    assert int(cancelled(name).split()[-1]) < 100


def test_many_streams_at_once_are_not_mixed(url):
    async def one(client, number):
        prompt = f"slowly {number}"
        ask = {"model": "typescript_words", "messages": [{"role": "user", "content": prompt}], "max_tokens": 10 + number % 7}
        chunks = [chunk async for chunk in await client.chat.completions.create(**ask, stream=True)]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text.split() == [f"word{i}" for i in range(10 + number % 7)], number
        assert len({chunk.id for chunk in chunks}) == 1
        return chunks[0].id

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any") as client:
            return await asyncio.gather(*[one(client, number) for number in range(64)])

    assert len(set(asyncio.run(all_of_them()))) == 64
