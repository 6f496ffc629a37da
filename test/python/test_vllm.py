"""Models of `backend: "vllm"`, over a stand-in of the package vllm (frameworks/vllm_stand_in): no test here runs vLLM (spec: backends-native.md, 9).

Tests run with our backend, and those of what the server does also with one in `--backend-directory` that is written as the public vllm_backend is: engine
and responses in threads of its own, a package `utils` beside it. NEREID_TEST_VLLM_BACKEND names the directory `src` of the public one, which then runs too.
"""
import base64
import http.client
import json
import os
import queue
import shutil
import sys
import threading

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from framework_server import parameters
from interpreter import python_server
from language_models import Generates, flag, text
from server import waits_for

HERE = os.path.dirname(os.path.abspath(__file__))
STAND_IN = os.path.join(HERE, "frameworks/vllm_stand_in")
LIKE_PUBLIC = os.path.join(HERE, "frameworks/vllm_backend")
PUBLIC = os.environ.get("NEREID_TEST_VLLM_BACKEND")
ENV = {"PYTHONPATH": STAND_IN}
INPUTS = [
    "text_input", "image", "stream", "sampling_parameters", "exclude_input_in_output", "return_finish_reason", "return_cumulative_logprob", "return_logprobs",
    "return_num_input_tokens", "return_num_output_tokens", "embedding_request",
]  # fmt: skip
OUTPUTS = ["text_output", "finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens"]
ENDLESS = 10_000_000
COMPLETE = ["ours", *(["public"] if PUBLIC else [])]

#: A test of what the backend in the shape of the public one has not.
complete = pytest.mark.parametrize("place", COMPLETE, indirect=True, scope="module")
ours = pytest.mark.parametrize("place", ["ours"], indirect=True, scope="module")


@pytest.mark.skipif(PUBLIC is None, reason="absent: NEREID_TEST_VLLM_BACKEND names no directory src of vllm_backend")
def test_the_public_backend_runs_in_the_tests_below():
    assert "model.py" in os.listdir(PUBLIC)


@pytest.fixture(scope="module", params=[*COMPLETE, "like_public"])
def place(request, tmp_path_factory):
    """A server whose vLLM models are written below the path."""
    root = tmp_path_factory.mktemp(f"vllm_{request.param}")
    (root / "models").mkdir()
    flags = []
    if request.param != "ours":
        shutil.copytree(PUBLIC if request.param == "public" else LIKE_PUBLIC, root / "backends/vllm")
        flags = [f"--backend-directory={root / 'backends'}"]
    one = python_server(root / "models", "--model-control-mode=explicit", *flags, log=root / "server.log", env=ENV)
    one.kind = request.param
    yield root, one
    assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()


def write(place, name, engine=None, config="", files=None):
    """Writes a model, and returns the status and the answer of its load."""
    root, server = place
    directory = root / "models" / name
    (directory / "1").mkdir(parents=True, exist_ok=True)
    (directory / "1/model.json").write_text(engine if isinstance(engine, str) else json.dumps({"model": str(directory), **(engine or {})}))
    for file, text in (files or {}).items():
        (directory / file).write_text(text)
    (directory / "config.pbtxt").write_text('backend: "vllm"\ninstance_group [ { count: 1 kind: KIND_MODEL } ]\n' + config)
    status, _, body = server.request("POST", f"/v2/repository/models/{name}/load", b"{}")
    return status, body, directory


@pytest.fixture
def load(place):
    """`load(name, engine, config, files)` writes a model and loads it; with `error=True` it returns the text of the load that failed."""
    made = []

    def go(name, error=False, **model):
        status, body, directory = write(place, name, **model)
        assert (status == 200) is not error, body
        if error:
            return json.loads(body)["error"]
        made.append(name)
        return Generates(place[1], name, directory)

    yield go
    for name in made:
        place[1].request("POST", f"/v2/repository/models/{name}/unload", b"{}")


@pytest.fixture(scope="module")
def plain(place):
    """The model that most tests ask."""
    status, body, directory = write(place, "plain")
    assert status == 200, body
    return Generates(place[1], "plain", directory)


@complete
def test_the_configuration_is_the_backends(load):
    one = load("configured")
    config = json.loads(one.server.get(f"{one.path}/config"))
    assert [tensor["name"] for tensor in config["input"]] == INPUTS
    assert [tensor["name"] for tensor in config["output"]] == OUTPUTS
    assert config["max_batch_size"] == 0 and config["model_transaction_policy"]["decoupled"] is True
    assert [tensor["name"] for tensor in config["input"] if not tensor.get("optional")] == ["text_input"]


@pytest.mark.parametrize("nested", [False, True])
def test_generate_takes_settings_as_parameters_and_puts_the_prompt_in_front(plain, nested):
    """B-PYB-11"""
    one = plain
    settings = {"max_tokens": 3, "temperature": 0.5}
    body = {"parameters": settings} if nested else settings
    assert one.generate(text_input="a b", **body)["text_output"] == "a b t0 t1 t2"
    assert any("'a b' temperature=0.5" in line for line in one.journal())
    assert one.generate(text_input="a b", exclude_input_in_output=True, **body)["text_output"] == " t0 t1 t2"


def test_generate_stream_sends_what_each_step_adds(plain):
    one = plain
    events = one.stream(text_input="a b", stream=True, max_tokens=4)
    assert [event["text_output"] for event in events] == [" t0", " t1", " t2", " t3"]
    # Without `stream` the one response has all.
    assert [event["text_output"] for event in one.stream(text_input="a", max_tokens=2)] == ["a t0 t1"]


def test_sampling_parameters_go_before_parameters_of_the_request(plain):
    one = plain
    sampling = json.dumps({"max_tokens": 2, "n": 2})
    assert one.generate(text_input="x", sampling_parameters=sampling, exclude_input_in_output=True, max_tokens=7)["text_output"] == [" t0 t1", " t0 t1"]


@complete
def test_values_that_are_texts_become_the_types_of_the_settings(plain):
    one = plain
    assert one.generate(text_input="x", sampling_parameters='{"max_tokens": "2", "temperature": "0"}')["text_output"] == "x t0 t1"


def test_a_grpc_stream_gets_each_step_and_an_empty_end(plain):
    one = plain
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(one.server.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        inputs = [text("text_input", b"a"), flag("stream", True), text("sampling_parameters", b'{"max_tokens": 3}')]
        client.async_stream_infer(one.name, inputs, enable_empty_final_response=True)
        seen = []
        while True:
            result, error = answers.get(timeout=30)
            assert error is None, error
            answer = result.get_response()
            if answer.outputs:
                seen.append(result.as_numpy("text_output")[0])
            if answer.parameters["triton_final_response"].bool_param:
                break
    assert seen == [b" t0", b" t1", b" t2"]


@complete
def test_further_outputs_come_when_they_are_asked_for(plain):
    one = plain
    wanted = {f"return_{name}": True for name in ("finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens")}
    answer = one.generate(text_input="a b c", max_tokens=2, logprobs=1, **wanted)
    assert answer["finish_reason"] == "length" and answer["num_input_tokens"] == 3 and answer["num_output_tokens"] == 2
    assert answer["cumulative_logprob"] == -1
    assert [list(one.values())[0]["decoded_token"] for one in json.loads(answer["logprobs"])] == [" t0", " t1"]
    steps = one.stream(text_input="a", stream=True, max_tokens=2, logprobs=1, **wanted)
    assert [step["num_output_tokens"] for step in steps] == [1, 1]
    assert [step["finish_reason"] for step in steps] == ["None", "length"]
    assert [len(json.loads(step["logprobs"])) for step in steps] == [1, 1]
    # Not asked for, they are not there.
    assert one.generate(text_input="a", max_tokens=1).keys() == {"model_name", "model_version", "text_output"}


def test_many_requests_run_in_the_engine_at_once(plain):
    one = plain
    answers = {}

    def ask(i):
        answers[i] = one.generate(text_input=f"p{i}", max_tokens=20 + i)["text_output"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == {i: f"p{i}" + "".join(f" t{j}" for j in range(20 + i)) for i in range(16)}


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_goes_away_ends_the_request_of_the_engine(plain, streams):
    one = plain
    generated, aborted = one.count("generate"), one.count("aborted")
    connection = http.client.HTTPConnection("127.0.0.1", one.server.http_port, timeout=30)
    connection.request("POST", f"{one.path}/generate_stream", json.dumps({"text_input": "a", "stream": streams, "max_tokens": ENDLESS}))
    if streams:
        assert connection.getresponse().readline().startswith(b"data: ")
    one.waits_for("generate", generated + 1)
    connection.sock.close()
    connection.close()
    one.waits_for("aborted", aborted + 1)
    # And the model goes on.
    assert one.generate(text_input="b", max_tokens=1)["text_output"] == "b t0"


def test_a_grpc_call_that_is_cancelled_ends_the_request_of_the_engine(plain):
    one = plain
    aborted = one.count("aborted")
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(one.server.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        client.async_stream_infer(one.name, [text("text_input", b"a"), flag("stream", True), text("sampling_parameters", json.dumps({"max_tokens": ENDLESS}).encode())])
        assert answers.get(timeout=30)[1] is None
        client.stop_stream(cancel_requests=True)
    one.waits_for("aborted", aborted + 1)


@complete
def test_an_image_is_handed_on(plain):
    one = plain
    image = base64.b64encode(b"\x89PNG of sorts").decode()
    assert one.generate(text_input="a", image=[image, image], max_tokens=1)["text_output"] == "a t0"
    assert any("images=2" in line for line in one.journal())


@complete
def test_an_embedding_is_a_request_of_its_own(load):
    one = load("embeds", engine={"task": "embed"})
    request = json.dumps({"input": "a b c", "pooling_params": {"dimensions": [2]}})
    answer = one.generate(text_input="", embedding_request=request, return_num_input_tokens=True)
    assert json.loads(answer["text_output"]) == [0.5, 0.5] and answer["num_input_tokens"] == 3
    status, answer = one.post("generate", text_input="a")
    assert status == 400 and "does not support 'generate' request" in answer["error"]


@complete
def test_loras_of_multi_lora_json_are_chosen_by_name(load):
    one = load("loras", engine={"enable_lora": True}, files={"1/multi_lora.json": '{"alpha": "/weights/alpha", "beta": "/weights/beta"}'})
    assert one.generate(text_input="a", lora_name="beta", max_tokens=1)["text_output"] == "a t0"
    assert any("lora=/weights/beta" in line for line in one.journal())
    status, answer = one.post("generate", text_input="a", lora_name="gamma")
    assert status == 400 and "LoRA gamma is not supported, we currently support ['alpha', 'beta']" in answer["error"]
    other = load("no_loras")
    status, answer = other.post("generate", text_input="a", lora_name="beta")
    assert status == 400 and "LoRA feature is not enabled." in answer["error"]


@complete
def test_wrong_settings_fail_their_request_only(plain):
    one = plain
    for body in ({"temperature": -1}, {"sampling_parameters": "no json"}, {"sampling_parameters": '{"no_such_setting": 1}'}):
        status, answer = one.post("generate", text_input="a", **body)
        assert status == 400 and answer["error"], answer
    status, answer = one.post("generate", text_input="a", stream=True, exclude_input_in_output=False)
    assert status == 400 and "When streaming, `exclude_input_in_output` = False is not allowed." in answer["error"]
    assert one.generate(text_input="a", max_tokens=1)["text_output"] == "a t0"


def test_metrics_of_the_engine_are_the_servers(load):
    one = load("measured", config=parameters(REPORT_CUSTOM_METRICS="true"))
    one.generate(text_input="a b c", max_tokens=4)
    expected = {"generation_tokens_total": 4, "request_generation_tokens_count": 1}
    if one.server.kind != "like_public":
        expected.update(prompt_tokens_total=3, time_to_first_token_seconds_count=1, time_per_output_token_seconds_count=3, e2e_request_latency_seconds_count=1, request_prompt_tokens_count=1, request_params_n_count=1)

    def measured():
        metrics = one.server.metrics()
        return {name: metrics.get(f'vllm:{name}{{model="measured",version="1"}}') for name in expected}

    waits_for(lambda: measured() == expected, f"{expected}, not {measured()}")


def test_an_engine_that_is_sick_unloads_its_model_which_can_be_loaded_again(load):
    one = load("sick", config=parameters(ENABLE_VLLM_HEALTH_CHECK="true"))
    assert one.generate(text_input="a", max_tokens=1)["text_output"] == "a t0"
    (one.directory / "sick").touch()
    if one.server.kind == "ours":
        assert not one.is_ready()
    status, answer = one.post("generate", text_input="a", max_tokens=1)
    assert status == 400 and answer["error"] == "Model is unavailable due to unhealthy vLLM engine"
    waits_for(lambda: not one.is_ready(), "the model is not ready")
    one.waits_for("shutdown")
    (one.directory / "sick").unlink()
    one = load("sick", config=parameters(ENABLE_VLLM_HEALTH_CHECK="true"))
    assert one.generate(text_input="a", max_tokens=1)["text_output"] == "a t0"


def test_a_dead_engine_ends_its_process_which_is_started_again(load):
    one = load("dies")
    assert one.generate(text_input="a", max_tokens=1)["text_output"] == "a t0"
    (one.directory / "dead").touch()
    status, answer = one.post("generate", text_input="a", max_tokens=1)
    assert status == 400 and "EngineCore encountered an issue." in answer["error"], answer
    one.server.logged(
        "Model 'dies_0_0' ends, to be started again: EngineDeadError: EngineCore encountered an issue.", "dies_0_0: the runner was started again"
    )
    # It dies again after each request, and is not ready during the pauses, which grow.
    waits_for(lambda: one.post("generate", text_input="a", max_tokens=1) and not one.is_ready(), "the model is not ready")
    (one.directory / "dead").unlink()
    waits_for(one.is_ready, "the model is ready again")
    assert one.generate(text_input="a", max_tokens=1)["text_output"] == "a t0"
    assert one.server.gauge("nereid_runner_restarts", "dies") >= 2


@ours
@pytest.mark.parametrize("streams", [False, True])
def test_an_exception_without_a_text_is_named_by_its_type(plain, streams):
    path = f"{plain.path}/generate{'_stream' * streams}"
    status, _, answer = plain.server.request("POST", path, json.dumps({"text_input": "mute", "max_tokens": 1}).encode())
    expected = b'{"error":"Error generating stream: RuntimeError"}'
    assert (status, answer) == (400, b"data: " + expected + b"\n\n" if streams else expected)


def test_an_unload_lets_the_engine_finish(load):
    one = load("unloaded")
    answers = queue.Queue()
    asked = threading.Thread(target=lambda: answers.put(one.post("generate", text_input="a", max_tokens=200)))
    asked.start()
    one.waits_for("generate")
    status, _, body = one.server.request("POST", f"/v2/repository/models/{one.name}/unload", b"{}")
    assert status == 200, body
    status, answer = answers.get(timeout=30)
    assert status == 200 and answer["text_output"].endswith(" t199"), answer
    asked.join()
    one.waits_for("shutdown")


def test_what_keeps_an_engine_from_starting_is_said(load):
    assert "unexpected keyword argument 'no_such_argument'" in load("unknown", engine={"no_such_argument": 1}, error=True)
    assert "no memory is left, so to speak" in load("broken", files={"broken": "no memory is left, so to speak"}, error=True)


@ours
def test_what_is_wrong_with_the_files_of_a_model_is_said(load):
    assert "1/model.json' is no JSON: " in load("no_json", engine="{", error=True)
    assert "1/model.json' has to be an object with the arguments of the vLLM engine" in load("a_list", engine="[]", error=True)
    assert "1/multi_lora.json' is not there; it has to have the directory of each LoRA by its name" in load("no_loras_file", engine={"enable_lora": "true"}, error=True)


@ours
def test_codes_of_errors_are_those_of_their_causes(plain):
    one = plain
    with grpcclient.InferenceServerClient(one.server.grpc) as client:
        for sampling, code, message in ((b"{", "INVALID_ARGUMENT", "sampling_parameters is no JSON"), (b'{"temperature": -1}', "INVALID_ARGUMENT", "temperature must be non-negative"), (b'{"lora_name": "x"}', "INVALID_ARGUMENT", "LoRA feature is not enabled.")):
            answers = queue.Queue()
            client.start_stream(callback=lambda result, error: answers.put(error))
            client.async_stream_infer(one.name, [text("text_input", b"a"), text("sampling_parameters", sampling)])
            error = answers.get(timeout=30)
            assert isinstance(error, InferenceServerException) and message in error.message(), error
            assert code in (error.status() or error.message()) or code == "INVALID_ARGUMENT", error
            client.stop_stream()


@ours
@pytest.mark.parametrize("prompt, expected, named", [("too long", 400, "the maximum model length of 8"), ("mute", 500, "RuntimeError")])
def test_an_error_of_a_completion_has_the_status_of_its_cause(plain, prompt, expected, named):
    for streams in (False, True):
        status, _, answer = plain.server.request("POST", "/v1/completions", json.dumps({"model": plain.name, "prompt": prompt, "stream": streams}).encode())
        assert status == expected and named in json.loads(answer)["error"]["message"]


@ours
def test_biases_are_by_token_id_and_within_their_bounds(plain):
    plain.generate(text_input="biased", sampling_parameters='{"max_tokens": 1, "logit_bias": {"7": -1, "8": 1000}}')
    assert any("'biased'" in line and "bias={7: -1.0, 8: 100.0}" in line for line in plain.journal())
    for wrong in ('{"seven": 1}', '{"7": "much"}', "[7]"):
        status, answer = plain.post("generate", text_input="a", sampling_parameters=f'{{"logit_bias": {wrong}}}')
        assert status == 400 and "logit_bias must " in answer["error"]


@ours
@pytest.mark.parametrize("prompt, special", [("<s>a", {"add_special_tokens": False}), ("a<s>", None)])
def test_a_prompt_that_begins_with_the_first_token_gets_no_second_one(plain, prompt, special):
    plain.generate(text_input=prompt, max_tokens=1)
    assert any(repr(prompt) in line and line.endswith(f"tokenization={special}") for line in plain.journal())


def test_settings_may_be_parameters_of_a_grpc_request(plain):
    one = plain
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(one.server.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        client.async_stream_infer(one.name, [text("text_input", b"a")], parameters={"max_tokens": 2}, enable_empty_final_response=True)
        result, error = answers.get(timeout=30)
        assert error is None, error
        assert result.as_numpy("text_output")[0] == b"a t0 t1"


@pytest.mark.parametrize("backend", ["ours", "like_public"])
def test_without_the_package_the_error_names_the_search_path_and_the_install_command(start, tmp_path, backend):
    (tmp_path / "models/llm/1").mkdir(parents=True)
    (tmp_path / "models/llm/1/model.json").write_text('{"model": "facebook/opt-125m"}')
    (tmp_path / "models/llm/config.pbtxt").write_text('backend: "vllm"')
    flags = ["--exit-on-error=false", f"--backend-config=python,python-executable={sys.executable}"]
    if backend == "like_public":
        shutil.copytree(LIKE_PUBLIC, tmp_path / "backends/vllm")
        flags.append(f"--backend-directory={tmp_path / 'backends'}")
    one = start(tmp_path / "models", *flags)
    reason = next(model["reason"] for model in json.loads(one.request("POST", "/v2/repository/index", b"{}")[2]) if model["name"] == "llm")
    assert f"{sys.executable} -m pip install vllm" in reason, reason
    if backend == "ours":
        assert f"failed to load model 'llm': its backend needs vLLM, and {sys.executable} (Python " in reason and "has no module 'vllm'" in reason, reason
