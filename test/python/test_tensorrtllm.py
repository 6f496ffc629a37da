"""Models of TensorRT-LLM on the Python runtime, with stand-ins of its packages (frameworks/tensorrtllm_stand_in): the
LLM API, and the ensemble around the engine. No test here runs TensorRT-LLM (spec: backends-native.md, 9).

The models are ours, in the shape of the public ones (frameworks/tensorrtllm_models). NEREID_TEST_TENSORRTLLM_MODELS
names a public directory `all_models`, whose models then run, too. In both the engine of the ensemble is a stand-in.
"""
import http.client
import json
import os
import queue
import shutil
import string
import sys
import threading

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from interpreter import FLAG, python_server
from language_models import Generates, flag, text

HERE = os.path.dirname(os.path.abspath(__file__))
STAND_IN = os.path.join(HERE, "frameworks/tensorrtllm_stand_in")
OURS = os.path.join(HERE, "frameworks/tensorrtllm_models")
PUBLIC = os.environ.get("NEREID_TEST_TENSORRTLLM_MODELS")
ENGINE = os.path.join(OURS, "inflight_batcher_llm/tensorrt_llm/1/model.py")
ENDLESS = 10_000_000
#: The model that model.yaml names.
PUBLISHED = "model: TinyLlama/TinyLlama-1.1B-Chat-v1.0"
PROMPT = "What is a tensor?"
#: The vocabulary of the ensemble: ` t0` has the id that the engine begins with.
TOKENS = ["</s>", "<s>", "<unk>", *[f" t{i}" for i in range(64)], "What", " is", " a", " tensor?", "Why?"]
#: What the templates of the configurations ask for, as tools/fill_template.py of the public repository sets it.
VALUES = {
    "triton_backend": "python", "triton_max_batch_size": 8, "decoupled_mode": "true", "max_queue_size": 0,
    "max_queue_delay_microseconds": 0, "add_special_tokens": "false", "skip_special_tokens": "true",
    "preprocessing_instance_count": 1, "postprocessing_instance_count": 1, "bls_instance_count": 1,
    "logits_datatype": "TYPE_FP32", "encoder_input_features_data_type": "TYPE_FP16", "accumulate_tokens": "false",
    "tensorrt_llm_model_name": "tensorrt_llm", "multimodal_model_path": "",
}  # fmt: skip


@pytest.mark.skipif(
    PUBLIC is None, reason="absent: NEREID_TEST_TENSORRTLLM_MODELS names no directory all_models of TensorRT-LLM"
)
def test_the_public_models_run_in_the_tests_below():
    assert {"llmapi", "inflight_batcher_llm"} <= set(os.listdir(PUBLIC))


@pytest.fixture(scope="module", params=["like_public", *(["public"] if PUBLIC else [])])
def place(request, tmp_path_factory):
    """A server whose models are written below the path, from models of ours or public ones."""
    root = tmp_path_factory.mktemp(f"tensorrtllm_{request.param}")
    (root / "models").mkdir()
    log = root / "server.log"
    one = python_server(root / "models", "--model-control-mode=explicit", log=log, env={"PYTHONPATH": STAND_IN})
    one.source = OURS if request.param == "like_public" else PUBLIC
    yield root, one
    assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()


def load(server, name):
    """Text of the error, None if the model is loaded."""
    status, _, body = server.request("POST", f"/v2/repository/models/{name}/load", b"{}")
    return None if status == 200 else json.loads(body)["error"]


def number(value):
    array = np.array([value], np.int32)
    return grpcclient.InferInput("sampling_param_max_tokens", [1], "INT32").set_data_from_numpy(array)


# The LLM API.


def write_llm(place, name, decoupled=True, broken=None, arguments=""):
    root, server = place
    directory = root / "models" / name
    shutil.copytree(os.path.join(server.source, "llmapi/tensorrt_llm"), directory)
    config = directory / "config.pbtxt"
    config.write_text(config.read_text().replace('name: "tensorrt_llm"', ""))
    settings = directory / "1/model.yaml"
    lines = settings.read_text().replace("decoupled: False", f"decoupled: {decoupled}")
    settings.write_text(lines.replace(PUBLISHED, f"model: {directory}\n{arguments}"))
    if broken is not None:
        (directory / "broken").write_text(broken)
    return Generates(server, name, directory)


@pytest.fixture(scope="module")
def llm(place):
    one = write_llm(place, "llm")
    assert load(one.server, "llm") is None
    return one


def of_source(place, word, what):
    """Skips models of a version that does not do something yet."""
    with open(os.path.join(place[1].source, "llmapi/tensorrt_llm/1/model.py")) as file:
        if word not in file.read():
            pytest.skip(f"the model.py of this version {what}")


@pytest.mark.parametrize("decoupled", [True, False])
def test_model_yaml_decides_whether_the_model_is_decoupled(place, decoupled):
    one = write_llm(place, f"decoupled_{decoupled}", decoupled)
    assert load(one.server, one.name) is None
    config = one.server.json(f"{one.path}/config")
    assert config["max_batch_size"] == 0
    assert config.get("model_transaction_policy", {}).get("decoupled", False) is decoupled
    assert one.journal()[0].startswith("started backend=pytorch")
    assert one.generate(text_input=PROMPT, sampling_param_max_tokens=2)["text_output"] == f"{PROMPT} t0 t1"
    if not decoupled:
        status, answer = one.post("generate", text_input=PROMPT, streaming=True)
        text = "Error generating request: Streaming is only supported in decoupled mode."
        assert (status, answer["error"]) == (400, text)


def test_generate_takes_the_settings_of_its_request(llm):
    settings = {"sampling_param_max_tokens": 3, "sampling_param_temperature": 0.5}
    excluded = llm.generate(text_input="a b", sampling_param_exclude_input_from_output=True, **settings)
    assert excluded["text_output"] == " t0 t1 t2"
    assert any("'a b' temperature=0.5" in line for line in llm.journal())


def test_generate_stream_sends_the_whole_text_of_each_step(llm):
    events = llm.stream(text_input="a", streaming=True, sampling_param_max_tokens=3)
    assert [event["text_output"] for event in events] == ["a t0", "a t0 t1", "a t0 t1 t2"]
    events = llm.stream(text_input="a", sampling_param_max_tokens=3)
    assert [event["text_output"] for event in events] == ["a t0 t1 t2"]


def test_a_grpc_stream_gets_each_step(llm):
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(llm.server.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        inputs = [text("text_input", "a"), flag("streaming", True)]
        inputs.append(text("sampling_param_stop", "t2"))
        client.async_stream_infer(llm.name, inputs)
        seen = []
        while True:
            result, error = answers.get(timeout=30)
            assert error is None, error
            seen.append(result.as_numpy("text_output")[0])
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
    # The last step finds the stop word and has no further text.
    assert seen == [b"a t0", b"a t0 t1", b"a t0 t1"]


def test_reasons_are_outputs_if_they_are_asked_for(llm):
    asked = {"return_finish_reason": True, "return_stop_reason": True}
    answer = llm.generate(text_input="a", sampling_param_max_tokens=2, **asked)
    assert (answer["finish_reason"], answer["stop_reason"]) == ("length", "None")
    answer = llm.generate(text_input="a", sampling_param_stop=["t1", "t5"], **asked)
    assert (answer["text_output"], answer["finish_reason"], answer["stop_reason"]) == ("a t0", "stop", "t1")
    assert llm.generate(text_input="a").keys() == {"model_name", "model_version", "text_output"}


def test_wrong_settings_fail_their_request_only(llm):
    status, answer = llm.post("generate", text_input="a", sampling_param_max_tokens=0)
    assert (status, answer["error"]) == (400, "Error generating request: max_tokens must be at least 1, got 0")
    assert llm.generate(text_input="a", sampling_param_max_tokens=1)["text_output"] == "a t0"


def test_many_requests_run_in_the_engine_at_once(llm):
    answers = {}

    def ask(i):
        answers[i] = llm.generate(text_input=f"p{i}", sampling_param_max_tokens=20 + i)["text_output"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == {i: f"p{i}" + "".join(f" t{j}" for j in range(20 + i)) for i in range(16)}


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_disconnects_ends_its_request_in_the_engine(place, llm, streams):
    of_source(place, ".abort()", "aborts no requests")
    generated, aborted = llm.count("generate"), llm.count("aborted")
    connection = http.client.HTTPConnection("127.0.0.1", llm.server.http_port, timeout=30)
    body = {"text_input": "a", "streaming": streams, "sampling_param_max_tokens": ENDLESS}
    connection.request("POST", f"{llm.path}/generate_stream", json.dumps(body))
    if streams:
        assert connection.getresponse().readline().startswith(b"data: ")
    llm.waits_for("generate", generated + 1)
    connection.sock.close()
    connection.close()
    llm.waits_for("aborted", aborted + 1)
    assert llm.generate(text_input="b", sampling_param_max_tokens=1)["text_output"] == "b t0"


def test_a_request_with_stop_ends_the_request_that_has_its_id(place, llm):
    of_source(place, ".abort()", "aborts no requests")
    generated, aborted = llm.count("generate"), llm.count("aborted")
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(llm.server.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        settings = [flag("streaming", True), flag("return_finish_reason", True), number(ENDLESS)]
        client.async_stream_infer(llm.name, [text("text_input", "a"), *settings], request_id="seven")
        llm.waits_for("generate", generated + 1)
        client.async_stream_infer(llm.name, [text("text_input", ""), flag("stop", True)], request_id="seven")
        reasons, errors = [], []
        while not errors or reasons[-1:] != [b"cancelled"]:
            result, error = answers.get(timeout=30)
            if error is None:
                reasons.append(result.as_numpy("finish_reason")[0])
            else:
                errors.append(error.message())
    assert errors == ["Request cancelled by client"]
    assert set(reasons[:-1]) <= {b"None"}
    llm.waits_for("aborted", aborted + 1)


def test_an_unload_lets_running_requests_finish(place):
    one = write_llm(place, "unloaded")
    assert load(one.server, one.name) is None
    answers = queue.Queue()
    body = {"text_input": "a", "sampling_param_max_tokens": 200}
    asked = threading.Thread(target=lambda: answers.put(one.post("generate", **body)))
    asked.start()
    one.waits_for("generate")
    status, _, told = one.server.request("POST", f"/v2/repository/models/{one.name}/unload", b"{}")
    assert status == 200, told
    status, answer = answers.get(timeout=30)
    assert status == 200 and answer["text_output"].endswith(" t199"), answer
    asked.join()
    one.waits_for("shutdown")


def test_an_engine_that_does_not_start_fails_the_load_with_its_error(place):
    one = write_llm(place, "broken", broken="no GPU is left")
    assert "no GPU is left" in load(one.server, one.name)
    one = write_llm(place, "unknown", arguments="no_such_argument: 1")
    assert "unexpected argument 'no_such_argument'" in load(one.server, one.name)


# The ensemble.


@pytest.fixture(scope="module")
def models(place):
    """Preprocessing, the engine, postprocessing and what calls them; their names."""
    root, server = place
    source = os.path.join(server.source, "inflight_batcher_llm")
    names = [name for name in sorted(os.listdir(source)) if os.path.exists(f"{source}/{name}/config.pbtxt")]
    (root / "tokenizer").mkdir()
    (root / "tokenizer/vocab.txt").write_text("\n".join(TOKENS))
    for name in names:
        directory = root / "models" / name
        shutil.copytree(os.path.join(source, name), directory)
        (directory / "1").mkdir(exist_ok=True)
        config = string.Template((directory / "config.pbtxt").read_text())
        (directory / "config.pbtxt").write_text(config.safe_substitute(VALUES, tokenizer_dir=root / "tokenizer"))
    shutil.copy(ENGINE, root / "models/tensorrt_llm/1/model.py")
    for name in sorted(names, key=lambda name: name in ("ensemble", "tensorrt_llm_bls")):
        assert load(server, name) is None, name
    return names


@pytest.fixture(params=["ensemble", "tensorrt_llm_bls"])
def whole(request, place, models):
    """A model from text to text."""
    return Generates(place[1], request.param, place[0])


def test_generate_answers_with_the_prompt_and_the_text(whole):
    # The request of the public README.
    answer = whole.generate(text_input=PROMPT, max_tokens=3, bad_words="", stop_words="")
    assert answer["text_output"] == f"{PROMPT} t0 t1 t2"
    without = whole.generate(text_input=PROMPT, max_tokens=3, exclude_input_in_output=True)
    assert without["text_output"] == " t0 t1 t2"


def test_generate_stream_sends_the_new_text_of_each_step(whole):
    events = whole.stream(text_input=PROMPT, max_tokens=4, stream=True)
    assert [event["text_output"] for event in events] == [" t0", " t1", " t2", " t3"]
    assert [event["text_output"] for event in whole.stream(text_input="Why?", max_tokens=2)] == ["Why? t0 t1"]


def test_a_stop_word_passes_through_both_models_around_the_engine(whole):
    assert whole.generate(text_input="Why?", max_tokens=9, stop_words=[" t2", " t5"])["text_output"] == "Why? t0 t1 t2"
    events = whole.stream(text_input="Why?", max_tokens=9, stream=True, stop_words=[" t1"])
    assert "".join(event["text_output"] for event in events) == " t0 t1"


def test_a_word_outside_the_vocabulary_is_a_special_token_which_postprocessing_skips(whole):
    assert whole.generate(text_input="What was a tensor?", max_tokens=1)["text_output"] == "What a tensor? t0"


def test_rows_of_different_lengths_are_one_request(whole):
    answers = queue.Queue()
    prompts = grpcclient.InferInput("text_input", [2, 1], "BYTES")
    prompts.set_data_from_numpy(np.array([[PROMPT.encode()], [b"Why?"]], object))
    numbers = grpcclient.InferInput("max_tokens", [2, 1], "INT32")
    numbers.set_data_from_numpy(np.array([[1], [3]], np.int32))
    with grpcclient.InferenceServerClient(whole.server.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        client.async_stream_infer(whole.name, [prompts, numbers])
        result, error = answers.get(timeout=30)
    assert error is None, error
    assert result.as_numpy("text_output").tolist() == [f"{PROMPT} t0".encode(), b"Why? t0 t1 t2"]


def test_many_requests_get_their_own_texts(whole):
    answers = {}

    def ask(i):
        if i % 2:
            events = whole.stream(text_input="Why?", max_tokens=5 + i, stream=True)
            answers[i] = "".join(event["text_output"] for event in events)
        else:
            answers[i] = whole.generate(text_input=PROMPT, max_tokens=5 + i)["text_output"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    texts = {i: "".join(f" t{j}" for j in range(5 + i)) for i in range(12)}
    assert answers == {i: text if i % 2 else PROMPT + text for i, text in texts.items()}


def test_a_missing_input_is_named(whole):
    status, answer = whole.post("generate", text_input=PROMPT)
    assert status == 400 and "missing required input(s) ['max_tokens']" in answer["error"]


def test_a_tokenizer_that_is_not_there_fails_the_load_with_its_error(place, models):
    root, server = place
    shutil.copytree(root / "models/postprocessing", root / "models/no_tokenizer")
    config = root / "models/no_tokenizer/config.pbtxt"
    text = config.read_text().replace('name: "postprocessing"', "")
    config.write_text(text.replace(str(root / "tokenizer"), "/no/such/directory"))
    assert "Can't load tokenizer for '/no/such/directory'." in load(server, "no_tokenizer")


# What is refused.


def test_a_missing_package_is_named_with_the_interpreter_that_lacks_it(start, tmp_path):
    sources = {"tensorrt_llm": "llmapi/tensorrt_llm", "transformers": "inflight_batcher_llm/postprocessing"}
    for package, source in sources.items():
        shutil.copytree(os.path.join(OURS, source), tmp_path / "models" / f"needs_{package}")
        config = tmp_path / "models" / f"needs_{package}" / "config.pbtxt"
        config.write_text(string.Template(config.read_text()).substitute(VALUES, tokenizer_dir=""))
    one = start(tmp_path / "models", "--model-control-mode=explicit", FLAG)
    for package in sources:
        told = load(one, f"needs_{package}")
        assert f"No module named '{package}'" in told and sys.executable in told, told


def test_the_classic_engine_is_refused_with_what_to_do_instead(start, tmp_path):
    directory = tmp_path / "models/tensorrt_llm"
    shutil.copytree(os.path.join(OURS, "inflight_batcher_llm/tensorrt_llm"), directory)
    config = string.Template((directory / "config.pbtxt").read_text())
    (directory / "config.pbtxt").write_text(config.substitute(VALUES, triton_backend="tensorrtllm"))
    told = load(start(tmp_path / "models", "--model-control-mode=explicit"), "tensorrt_llm")
    assert "TensorRT-LLM engines are not in this release" in told and 'write backend: "python"' in told, told
