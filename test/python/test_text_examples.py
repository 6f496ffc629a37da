"""The folders `examples/text*`, each started as it is and asked with tritonclient as guides do: a string in, JSON or words out.

B-PY-33, B-PY-05, B-PY-10, B-PY-16: a tokenizer, a network and post-processing as an ensemble, in Python and in TypeScript, as one model that calls the network, and as a model that streams.
"""
import json
import os
import queue
import subprocess
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http

from interpreter import python_server
from server import NODE, ROOT

RHYME = "a small server woke before dawn and answered every question kindly until nobody asked anything".split()
TOPICS = {
    "The soup was delicious, and so was the bread.": "food",
    "She plays the violin in an orchestra": "music",
    "our team wins the final match": "sport",
    "Heavy snow and cold winds in winter!": "weather",
}


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """The models that `npm start` finds below `examples`."""
    out = tmp_path_factory.mktemp("examples")
    subprocess.run([NODE, os.path.join(ROOT, "scripts/models/text.mjs"), str(out)], check=True)
    return out


@pytest.fixture(scope="module", params=["text", "text-ts", "text_bls"])
def classifier(request, examples, tmp_path_factory):
    """The server of a folder, whose model has the folder's name, without the language."""
    one = python_server(examples / request.param, log=tmp_path_factory.mktemp("log") / "server.log")
    one.model = request.param.removesuffix("-ts")
    yield one
    assert one.stop() == 0, one.tail()


@pytest.fixture(scope="module")
def stream(examples, tmp_path_factory):
    one = python_server(examples / "text_stream", log=tmp_path_factory.mktemp("log") / "server.log")
    yield one
    assert one.stop() == 0, one.tail()


def ask(client, module, model, texts):
    """Results of texts, one row each."""
    array = np.array([[text.encode("utf-8")] for text in texts], dtype=np.object_)
    text = module.InferInput("text", list(array.shape), "BYTES")
    text.set_data_from_numpy(array)
    answer = client.infer(model, [text], outputs=[module.InferRequestedOutput("result")])
    result = answer.as_numpy("result")
    assert result.shape == (len(texts), 1)
    return [json.loads(row[0]) for row in result]


@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
def test_a_string_goes_in_and_json_comes_out(classifier, module):
    client = module.InferenceServerClient(classifier.http if module is http else classifier.grpc)
    assert client.is_model_ready(classifier.model)
    for text, label in TOPICS.items():
        [found] = ask(client, module, classifier.model, [text])
        assert found["label"] == label, (text, found)
        assert found["score"] == max(found["scores"].values()) > 0.5
        assert sorted(found["scores"]) == ["food", "music", "sport", "weather"]
        assert sum(found["scores"].values()) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])
def test_rows_of_one_request_are_padded_and_answered_as_alone(classifier, module):
    client = module.InferenceServerClient(classifier.http if module is http else classifier.grpc)
    together = ask(client, module, classifier.model, list(TOPICS))
    assert together == [ask(client, module, classifier.model, [text])[0] for text in TOPICS]


def test_text_without_known_words_and_without_any(classifier):
    client = http.InferenceServerClient(classifier.http)
    for text in ["", "日本語", "qwrtzp", "\x00", "🎻" * 500]:
        [found] = ask(client, http, classifier.model, [text])
        assert found["label"] in found["scores"], (text, found)


def test_json_in_and_json_out_with_curl_alone(classifier):
    body = json.dumps({"inputs": [{"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["rain and storm"]}]})
    with urllib.request.urlopen(f"http://{classifier.http}/v2/models/{classifier.model}/infer", data=body.encode()) as answer:
        [output] = json.load(answer)["outputs"]
    assert (output["datatype"], output["shape"]) == ("BYTES", [1, 1])
    assert json.loads(output["data"][0])["label"] == "weather"


def test_the_pipeline_in_typescript_answers_as_the_one_in_python(examples, tmp_path_factory):
    texts = [*TOPICS, "", "日本語", "qwrtzp", "\x00", "🎻" * 500, "İstanbul's ﬁnal, Ⅷ½ x_1", "rain" * 60, "play " * 300]
    answers = []
    for folder in ["text", "text-ts"]:
        server = python_server(examples / folder, log=tmp_path_factory.mktemp("log") / "server.log")
        client = http.InferenceServerClient(server.http)
        answers.append([ask(client, http, "text", [text])[0] for text in texts])
        assert server.stop() == 0, server.tail()
    python, typescript = answers
    assert typescript == python


def test_the_router_in_typescript_chooses_by_rules_and_by_user(tmp_path_factory):
    server = python_server(os.path.join(ROOT, "examples/router-ts"), log=tmp_path_factory.mktemp("log") / "server.log")

    def route(text, **more):
        inputs = [{"name": name, "shape": [1], "datatype": "BYTES", "data": [value]} for name, value in {"text": text, **more}.items()]
        body = json.dumps({"inputs": inputs}).encode()
        with urllib.request.urlopen(f"http://{server.http}/v2/models/router/infer", data=body) as answer:
            return {output["name"]: output["data"][0] for output in json.load(answer)["outputs"]}

    assert route("a refund, please") == {"label": "human", "by": "rule"}
    by_user = {user: route("not good", user=user) for user in map(str, range(40))}
    assert {answer["by"]: answer["label"] for answer in by_user.values()} == {"champion": "good", "challenger": "bad"}
    assert route("not good", user="7") == by_user["7"]
    assert server.stop() == 0, server.tail()


def words_over_grpc(server, prompt, max_tokens=None):
    """Words and end as a client sees them: one response each, then the final one."""
    found = queue.Queue()
    inputs = [grpc.InferInput("text_input", [1], "BYTES")]
    inputs[0].set_data_from_numpy(np.array([prompt.encode()], dtype=np.object_))
    if max_tokens is not None:
        inputs.append(grpc.InferInput("max_tokens", [1], "INT32"))
        inputs[1].set_data_from_numpy(np.array([max_tokens], dtype=np.int32))
    words = []
    with grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(callback=lambda result, error: found.put((result, error)))
        client.async_stream_infer("text_stream", inputs, request_id="1", enable_empty_final_response=True)
        while True:
            result, error = found.get(timeout=60)
            assert error is None, error
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                assert len(response.outputs) == 0
                return words
            words.append(result.as_numpy("text_output")[0].decode())


def test_words_stream_over_grpc(stream):
    assert words_over_grpc(stream, "once") == RHYME
    assert words_over_grpc(stream, "there was a small") == RHYME[2:]
    assert words_over_grpc(stream, "once", max_tokens=3) == RHYME[:3]
    assert words_over_grpc(stream, "nothing that it knows", max_tokens=1) == ["a"]


def events(server, body):
    request = urllib.request.Request(f"http://{server.http}/v2/models/text_stream/generate_stream", data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        return [json.loads(line[len("data: "):]) for line in answer.read().decode().split("\n\n") if line]


def test_words_stream_as_events(stream):
    found = events(stream, {"text_input": "once", "max_tokens": 5})
    assert [event["text_output"] for event in found if "text_output" in event] == RHYME[:5]
    assert {event["model_name"] for event in found} == {"text_stream"}
