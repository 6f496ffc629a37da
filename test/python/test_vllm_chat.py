"""Chats, completions and responses over vLLM itself on a CPU: a Llama of random weights (frameworks/vllm_tiny.py), whose greedy answers have to be those of vLLM's own `LLM` in one
process (frameworks/vllm_expected.py). NEREID_TEST_VLLM_PYTHON names the interpreter that has vLLM; `npm run test:heavy -- vllm` installs it.

The tests run with our backend `vllm`, and most of them with the public one, too, whose directory `src` NEREID_TEST_VLLM_BACKEND names, if NEREID_TEST_VLLM_PUBLIC_PYTHON names an
interpreter with a vLLM of its time, whose modules are where it imports them from."""
import http.client
import json
import os
import shutil
import subprocess
import threading
import time

import pytest

from framework_server import parameters
from server import Server, until
from test_vllm_itself import ENV, HERE, PYTHON, START_SECONDS_MAX

SOURCES = os.environ.get("NEREID_TEST_VLLM_BACKEND")
PUBLIC_PYTHON = os.environ.get("NEREID_TEST_VLLM_PUBLIC_PYTHON")
PYTHONS = {"ours": PYTHON, "public": PUBLIC_PYTHON}
pytestmark = pytest.mark.timeout(2 * START_SECONDS_MAX)
#: An engine that takes requests long enough to be left in the middle, and makes JSON without spaces, which a model of random weights would write for ever.
ENGINE = {
    "enforce_eager": True, "max_model_len": 4000, "dtype": "float32", "enable_lora": True, "max_lora_rank": 8, "enable_prefix_caching": False,
    "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
}  # fmt: skip
SEPARATOR = "_lora_"
HELLO = [{"role": "user", "content": "a tensor of rank two"}]
TALK = [
    {"role": "system", "content": "Names of tensors, “quoted”: 雪"},
    {"role": "user", "content": "tensor 7"},
    {"role": "assistant", "content": "size 49"},
    {"role": "user", "content": "tensor 8"},
]
GREEDY = {"temperature": 0, "max_tokens": 24}
#: What a chat without settings sends, as Triton does.
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 7, "max_tokens": 24}
PENALTIES = {"presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.3}
#: Asks of vLLM's `LLM`, by name.
ASKS = {
    "hello": {"messages": HELLO, "sampling": GREEDY},
    "talk": {"messages": TALK, "sampling": GREEDY},
    "lora": {"messages": HELLO, "sampling": GREEDY, "lora": True},
    "seed": {"messages": HELLO, "sampling": SEEDED},
    "next seed": {"messages": HELLO, "sampling": {**SEEDED, "seed": 8}},
    "logprobs": {"messages": HELLO, "sampling": {**GREEDY, "logprobs": 3}},
    "penalties": {"messages": HELLO, "sampling": {**GREEDY, **PENALTIES}},
    "prompt": {"prompt": "tensor 9", "sampling": GREEDY},
    "other prompt": {"prompt": "size 81", "sampling": GREEDY},
    **{f"stream {number}": {"messages": [{"role": "user", "content": f"tensor {number}"}], "sampling": {"temperature": 0, "max_tokens": 20 + number}} for number in range(16)},
}
CITY = {"type": "string", "enum": ["Dallas", "Oslo"]}
SCHEMA = {"type": "object", "properties": {"city": CITY, "warm": {"type": "boolean"}}, "required": ["city", "warm"], "additionalProperties": False}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "Weather of a city", "parameters": SCHEMA}} for name in ("weather_now", "weather_tomorrow")
]


def environment(python):
    return {**ENV, "PYTHONDONTWRITEBYTECODE": "1", "PATH": f"{os.path.dirname(python)}:{os.environ['PATH']}"}


def run(python, script, *arguments):
    path = os.path.join(HERE, "frameworks", script)
    ran = subprocess.run([python, path, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment(python)}, timeout=START_SECONDS_MAX)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-4000:]


class Chats:
    """A server of one model `tiny` with a LoRA `other`, and what vLLM says without it."""

    def __init__(self, kind, root):
        self.kind, self.root = kind, root
        python = PYTHONS[kind]
        run(python, "vllm_tiny.py", root / "tiny")
        run(python, "vllm_lora.py", root / "tiny", root / "lora")
        self.expected = self._expected(python)
        version = root / "models/tiny/1"
        version.mkdir(parents=True)
        (version / "model.json").write_text(json.dumps({**ENGINE, "model": str(root / "tiny")}))
        (version / "multi_lora.json").write_text(json.dumps({"other": str(root / "lora")}))
        config = 'backend: "vllm"\ninstance_group [ { count: 1 kind: KIND_MODEL } ]\n' + parameters(REPORT_CUSTOM_METRICS="true")
        (root / "models/tiny/config.pbtxt").write_text(config)
        flags = [f"--backend-config=python,python-executable={python}", f"--backend-config=python,stub-timeout-seconds={START_SECONDS_MAX}", f"--lora-separator={SEPARATOR}"]
        if kind == "public":
            shutil.copytree(SOURCES, root / "backends/vllm")
            flags.append(f"--backend-directory={root / 'backends'}")
        self.server = Server(root / "models", "--model-control-mode=explicit", "--tool-call-parser=hermes", *flags, log=root / "server.log", env=environment(python))
        status, _, body = self.server.request("POST", "/v2/repository/models/tiny/load", b"{}", timeout=START_SECONDS_MAX)
        assert status == 200, (body, self.server.tail())

    def _expected(self, python):
        asks, answers = self.root / "asks.json", self.root / "answers.json"
        as_text = {"as_text": True} if self.kind == "public" else {}
        given = {"engine": {**ENGINE, "model": str(self.root / "tiny")}, "lora": str(self.root / "lora"), "asks": [{**ask, **as_text} for ask in ASKS.values()]}
        asks.write_text(json.dumps(given))
        run(python, "vllm_expected.py", asks, answers)
        return dict(zip(ASKS, json.loads(answers.read_text())))

    def post(self, path, **body):
        """Status and body of a reply."""
        status, _, reply = self.server.request("POST", f"/v1/{path}", json.dumps({"model": "tiny", **body}).encode(), timeout=120)
        return status, json.loads(reply)

    def whole(self, path, **body):
        status, reply = self.post(path, **body)
        assert status == 200, (reply, self.server.tail())
        return reply

    def events(self, path, **body):
        """The events of a stream, without the last one, which has to be [DONE]."""
        status, _, reply = self.server.request("POST", f"/v1/{path}", json.dumps({"model": "tiny", "stream": True, **body}).encode(), timeout=120)
        assert status == 200, reply
        *events, last = [line[len("data: ") :] for line in reply.decode().splitlines() if line.startswith("data: ")]
        assert last == "[DONE]"
        return [json.loads(event) for event in events]

    def chat(self, **body):
        return self.whole("chat/completions", **{"messages": HELLO, **body})

    def chat_events(self, **body):
        return self.events("chat/completions", **{"messages": HELLO, **body})

    def error(self, path="chat/completions", **body):
        """Status and text of an error of a whole reply, which is that of a stream, too."""
        if path == "chat/completions":
            body = {"messages": HELLO, **body}
        status, reply = self.post(path, **body)
        assert status >= 400, reply
        assert self.post(path, **body, stream=True)[0] == status
        return status, reply["error"]["message"]

    def tokens(self):
        """Tokens that the engine has made, by its own count."""
        return self.server.metrics().get('vllm:generation_tokens_total{model="tiny",version="1"}', 0)


def text_of(events):
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


def reason_of(events):
    (reason,) = [choice["finish_reason"] for event in events for choice in event["choices"] if choice["finish_reason"]]
    return reason


def usage(expected, count=1):
    prompt, text = len(expected["prompt_tokens"]), count * len(expected["tokens"])
    return {"prompt_tokens": prompt, "completion_tokens": text, "total_tokens": prompt + text}


def numbers(found):
    return {name: found[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}


@pytest.fixture(scope="module", params=PYTHONS)
def chats(request, tmp_path_factory):
    kind = request.param
    if PYTHONS[kind] is None:
        pytest.skip(f"absent: {'NEREID_TEST_VLLM_PYTHON' if kind == 'ours' else 'NEREID_TEST_VLLM_PUBLIC_PYTHON'} names no interpreter with vLLM")
    if kind == "public" and SOURCES is None:
        pytest.skip("absent: NEREID_TEST_VLLM_BACKEND names no directory src of vllm_backend")
    one = Chats(kind, tmp_path_factory.mktemp(f"vllm_chat_{kind}"))
    try:
        yield one
        assert one.server.process.poll() is None, f"the server ended by itself:\n{one.server.tail()}"
    finally:
        assert one.server.stop() == 0, one.server.tail()


#: A test of what the public backend does not do, each with the reason beside it.
ours = pytest.mark.parametrize("chats", ["ours"], indirect=True)


@pytest.mark.parametrize("name", ["hello", "talk"])
def test_a_greedy_chat_has_the_text_and_the_counts_of_vllm_whole_and_streamed(chats, name):
    expected, messages = chats.expected[name], ASKS[name]["messages"]
    reply = chats.chat(messages=messages, **GREEDY)
    (choice,) = reply["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (expected["text"], expected["reason"])
    assert numbers(reply["usage"]) == usage(expected)
    *events, last = chats.chat_events(messages=messages, **GREEDY, stream_options={"include_usage": True})
    assert (text_of(events), reason_of(events)) == (expected["text"], expected["reason"])
    assert last["choices"] == [] and numbers(last["usage"]) == usage(expected)
    assert all(event["usage"] is None for event in events)
    assert text_of(chats.chat_events(messages=messages, **GREEDY)) == expected["text"]


def test_a_response_has_the_text_of_a_chat_whole_and_in_events(chats):
    expected = chats.expected["hello"]
    ask = {"input": HELLO, "temperature": 0, "max_output_tokens": GREEDY["max_tokens"]}
    reply = chats.whole("responses", **ask)
    (message,) = reply["output"]
    assert message["content"][0]["text"] == expected["text"]
    assert (reply["usage"]["input_tokens"], reply["usage"]["output_tokens"]) == (len(expected["prompt_tokens"]), len(expected["tokens"]))
    status, _, stream = chats.server.request("POST", "/v1/responses", json.dumps({"model": "tiny", "stream": True, **ask}).encode(), timeout=120)
    events = [json.loads(line[len("data: ") :]) for line in stream.decode().splitlines() if line.startswith("data: {")]
    assert status == 200 and "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == expected["text"]
    assert events[-1]["type"] == f"response.{reply['status']}"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_chat_ends_at_its_most_tokens(chats, name):
    reply = chats.chat(temperature=0, **{name: 3})
    assert reply["choices"][0]["finish_reason"] == "length" and reply["usage"]["completion_tokens"] == 3
    assert chats.expected["hello"]["text"].startswith(reply["choices"][0]["message"]["content"])
    assert reason_of(chats.chat_events(temperature=0, **{name: 3})) == "length"


def test_a_seed_gives_the_same_text_each_time_and_that_of_vllm(chats):
    texts = {chats.chat(**SEEDED)["choices"][0]["message"]["content"] for _ in range(2)} | {text_of(chats.chat_events(**SEEDED))}
    assert texts == {chats.expected["seed"]["text"]}


@pytest.mark.parametrize("streams", [False, True])
def test_two_choices_have_seeds_of_their_own_and_one_usage(chats, streams):
    wanted = [chats.expected[name] for name in ("seed", "next seed")]
    assert wanted[0]["text"] != wanted[1]["text"]
    ask = {**SEEDED, "n": 2}
    if streams:
        *events, last = chats.chat_events(**ask, stream_options={"include_usage": True})
        texts = {0: "", 1: ""}
        for choice in (choice for event in events for choice in event["choices"]):
            texts[choice["index"]] += choice["delta"].get("content") or ""
        found, counts = list(texts.values()), last["usage"]
    else:
        reply = chats.chat(**ask)
        found, counts = [choice["message"]["content"] for choice in reply["choices"]], reply["usage"]
    assert found == [one["text"] for one in wanted]
    assert counts["completion_tokens"] == sum(len(one["tokens"]) for one in wanted)
    assert counts["prompt_tokens"] == len(wanted[0]["prompt_tokens"])


@pytest.mark.parametrize("streams", [False, True])
def test_log_probabilities_are_those_of_vllm(chats, streams):
    ask = {**GREEDY, "logprobs": True, "top_logprobs": 3}
    if streams:
        choices = [choice for event in chats.chat_events(**ask) for choice in event["choices"] if choice.get("logprobs")]
        steps = [step for choice in choices for step in choice["logprobs"]["content"]]
    else:
        steps = chats.chat(**ask)["choices"][0]["logprobs"]["content"]
    expected = chats.expected["logprobs"]
    assert len(steps) == len(expected["tokens"])
    for step, wanted in zip(steps, expected["logprobs"]):
        assert step["logprob"] == pytest.approx(wanted[0][1], abs=1e-3)
        assert [top["logprob"] for top in step["top_logprobs"]] == pytest.approx([logprob for _, logprob, _ in sorted(wanted, key=lambda one: one[2])], abs=1e-3)
    assert "".join(step["token"] for step in steps) == expected["text"]


def test_log_probabilities_of_a_completion_are_those_of_vllm(chats):
    reply = chats.whole("completions", prompt="tensor 9", **GREEDY, logprobs=2)
    (choice,) = reply["choices"]
    assert choice["text"] == chats.expected["prompt"]["text"]
    assert len(choice["logprobs"]["tokens"]) == len(chats.expected["prompt"]["tokens"])
    assert all(2 <= len(top) <= 3 for top in choice["logprobs"]["top_logprobs"])


@pytest.mark.parametrize("form", [lambda stop: stop, lambda stop: [stop], lambda stop: ["never written", stop]], ids=["text", "list", "list of two"])
@pytest.mark.parametrize("streams", [False, True])
def test_a_stop_ends_the_text_before_it(chats, form, streams):
    text = chats.expected["hello"]["text"]
    stop = text[len(text) // 2 :][:3]
    ask = {**GREEDY, "stop": form(stop)}
    if streams:
        events = chats.chat_events(**ask)
        found = text_of(events), reason_of(events)
    else:
        choice = chats.chat(**ask)["choices"][0]
        found = choice["message"]["content"], choice["finish_reason"]
    assert found == (text[: text.index(stop)], "stop")


# The public backend hands vLLM the ids as texts, which it does not take; its front end rejects the field.
@ours
def test_a_logit_bias_bans_a_token_and_forces_one(chats):
    expected = chats.expected["hello"]
    first, forced = expected["tokens"][0], chats.expected["talk"]["tokens"][-1]
    banned = chats.chat(**GREEDY, logit_bias={str(first): -100}, logprobs=True)["choices"][0]
    assert banned["message"]["content"] != expected["text"]
    alone = chats.chat(temperature=0, max_tokens=5, logit_bias={str(forced): 100}, logprobs=True)["choices"][0]
    assert len({step["token"] for step in alone["logprobs"]["content"]}) == 1
    status, message = chats.error(logit_bias={"100000": 1})
    assert status == 400 and "100000" in message and "ocabulary" in message


def test_penalties_give_the_text_of_vllm(chats):
    expected = chats.expected["penalties"]
    # vLLM 0.13 on a CPU leaves penalties out.
    assert (expected["text"] != chats.expected["hello"]["text"]) is (chats.kind == "ours")
    assert chats.chat(**GREEDY, **PENALTIES)["choices"][0]["message"]["content"] == expected["text"]


@pytest.mark.parametrize(
    "settings",
    [{"top_k": 5}, {"min_p": 0.1}, {"min_tokens": 4}, {"ignore_eos": True}, {"stop_token_ids": [7]}, {"include_stop_str_in_output": True}, {"skip_special_tokens": False}, {"spaces_between_special_tokens": False}, {"top_p": 0.5}],
    ids=lambda settings: next(iter(settings)),
)
def test_further_settings_are_taken(chats, settings):
    assert chats.chat(seed=1, max_tokens=6, **settings)["usage"]["completion_tokens"] <= 6


@pytest.mark.parametrize("streams", [False, True])
def test_a_json_schema_is_held_to(chats, streams):
    ask = {**GREEDY, "max_tokens": 64, "response_format": {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}}
    text = text_of(chats.chat_events(**ask)) if streams else chats.chat(**ask)["choices"][0]["message"]["content"]
    found = json.loads(text)
    assert found.keys() == {"city", "warm"} and found["city"] in CITY["enum"] and isinstance(found["warm"], bool)


def test_a_json_schema_has_log_probabilities(chats):
    """Tokens that the schema forbids have a log probability of minus infinity, which JSON has not."""
    ask = {**GREEDY, "max_tokens": 64, "logprobs": True, "top_logprobs": 20, "response_format": {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}}
    choice = chats.chat(**ask)["choices"][0]
    assert "".join(step["token"] for step in choice["logprobs"]["content"]).startswith(choice["message"]["content"])


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("choice", ["required", "weather_tomorrow"])
def test_a_forced_tool_is_called_with_arguments_of_its_schema(chats, choice, streams):
    named = choice if choice == "required" else {"type": "function", "function": {"name": choice}}
    ask = {**GREEDY, "max_tokens": 200, "tools": TOOLS, "tool_choice": named, "parallel_tool_calls": False}
    if streams:
        parts = [part for event in chats.chat_events(**ask) for one in event["choices"] for part in one["delta"].get("tool_calls") or []]
        name = "".join(part["function"].get("name") or "" for part in parts)
        arguments = "".join(part["function"].get("arguments") or "" for part in parts)
    else:
        (call,) = chats.chat(**ask)["choices"][0]["message"]["tool_calls"]
        name, arguments = call["function"]["name"], call["function"]["arguments"]
    assert name in ([choice] if choice != "required" else [tool["function"]["name"] for tool in TOOLS])
    assert json.loads(arguments)["city"] in CITY["enum"]


def test_a_lora_is_chosen_by_the_name_of_the_model(chats):
    expected = chats.expected["lora"]
    assert expected["text"] != chats.expected["hello"]["text"]
    name = f"tiny{SEPARATOR}other"
    reply = chats.chat(model=name, **GREEDY)
    assert (reply["model"], reply["choices"][0]["message"]["content"]) == (name, expected["text"])
    assert text_of(chats.chat_events(model=name, **GREEDY)) == expected["text"]
    assert chats.chat(**GREEDY)["choices"][0]["message"]["content"] == chats.expected["hello"]["text"]
    unknown = f"tiny{SEPARATOR}unknown"
    status, message = chats.error(model=unknown)
    assert status == 400 and message.endswith(f"Unknown LoRA: unknown; for model: {unknown}"), message
    assert {name, "tiny"} <= {one["id"] for one in chats.server.json("/v1/models")["data"]}


def test_a_list_of_prompts_has_a_choice_for_each_and_echo_puts_them_before(chats):
    prompts = {ASKS[name]["prompt"]: chats.expected[name] for name in ("prompt", "other prompt")}
    reply = chats.whole("completions", prompt=list(prompts), **GREEDY)
    assert [choice["text"] for choice in reply["choices"]] == [one["text"] for one in prompts.values()]
    assert reply["usage"]["prompt_tokens"] == sum(len(one["prompt_tokens"]) for one in prompts.values())
    assert reply["usage"]["completion_tokens"] == sum(len(one["tokens"]) for one in prompts.values())
    echoed = chats.whole("completions", prompt=list(prompts), **GREEDY, echo=True)
    assert [choice["text"] for choice in echoed["choices"]] == [prompt + one["text"] for prompt, one in prompts.items()]
    events = chats.events("completions", prompt="tensor 9", **GREEDY, echo=True)
    assert "".join(choice["text"] for event in events for choice in event["choices"]) == "tensor 9" + prompts["tensor 9"]["text"]


def test_sixteen_streams_at_once_are_not_mixed(chats):
    names = [name for name in ASKS if name.startswith("stream ")]
    found = {}

    def ask(name):
        found[name] = text_of(chats.chat_events(messages=ASKS[name]["messages"], **ASKS[name]["sampling"]))

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert found == {name: chats.expected[name]["text"] for name in names}


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_leaves_ends_the_request_of_the_engine(chats, streams, record_testsuite_property):
    before = chats.tokens()
    ask = {"model": "tiny", "messages": HELLO, "max_tokens": 3500, "ignore_eos": True, "temperature": 0, "stream": streams}
    connection = http.client.HTTPConnection("127.0.0.1", chats.server.http_port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps(ask))
    if streams:
        reply = connection.getresponse()
        for _ in range(20):
            reply.readline()
    assert until(lambda: chats.tokens() > before + 20, 60), "the engine makes no tokens"
    left = time.monotonic()
    connection.sock.close() if connection.sock else reply.close()
    connection.close()
    last, at = chats.tokens(), left
    while time.monotonic() < max(at, left) + 1:
        now = chats.tokens()
        if now != last:
            last, at = now, time.monotonic()
        time.sleep(0.002)
    reply_kind = "stream" if streams else "whole reply"
    record_testsuite_property("measured", f"{chats.kind}, {reply_kind}: the engine made its last token {(at - left) * 1000:.0f} ms after the client left, {last - before:.0f} of 3500")
    assert last - before < 3000 and at - left < 2
    assert chats.chat(**GREEDY)["choices"][0]["message"]["content"] == chats.expected["hello"]["text"]


# The public backend has no code for an error of vLLM, which is the server's then: 500.
@ours
def test_a_prompt_that_is_too_long_is_the_clients_error_and_both_lengths_are_named(chats):
    words = "tensor " * 5000
    for path, ask in (("chat/completions", {"messages": [{"role": "user", "content": words}]}), ("completions", {"prompt": words})):
        status, message = chats.error(path, **ask)
        assert status == 400 and str(ENGINE["max_model_len"]) in message and "length" in message, message
    assert "length" in chats.error("responses", input=words)[1]


@ours
@pytest.mark.parametrize(
    "ask, named",
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"length_penalty": 1.5}, "length_penalty"),
        ({"stop_token_ids": [100000]}, "100000"),
        ({"structured_outputs": {"regex": "("}}, "regex"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nothing"}}}}, "nothing"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_settings_that_vllm_rejects_are_named_and_are_the_clients_error(chats, ask, named):
    status, message = chats.error(**ask)
    assert status == 400 and named in message, (status, message)
