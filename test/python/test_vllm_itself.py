"""Models of `backend: "vllm"`, run by vLLM itself on a CPU: a Llama of random weights (frameworks/vllm_tiny.py). NEREID_TEST_VLLM_PYTHON names the interpreter that has vLLM;
`npm run test:heavy -- vllm` installs it (spec: backends-native.md, 9)."""
import json
import os
import subprocess

import pytest

from framework_server import parameters
from language_models import Generates
from server import Server

PYTHON = os.environ.get("NEREID_TEST_VLLM_PYTHON")
HERE = os.path.dirname(os.path.abspath(__file__))
#: A cold start compiles and takes six minutes on two cores.
START_SECONDS_MAX = 900
pytestmark = [
    pytest.mark.skipif(PYTHON is None, reason="absent: NEREID_TEST_VLLM_PYTHON names no interpreter with vLLM"), pytest.mark.timeout(START_SECONDS_MAX),
]  # fmt: skip
ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1", "VLLM_LOGGING_LEVEL": "WARNING",
}  # fmt: skip
#: Everything of vLLM that crates/backend-python/backends/vllm uses, beside what one test of a generation calls.
NAMES = """
import inspect
import vllm
import vllm.exceptions
from vllm.lora.request import LoRARequest
from vllm.outputs import EmbeddingRequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import FinishedRequestStats, IterationStats

missing = []

def wants(what, *names):
    missing.extend(f"{what}: {name}" for name in names if name not in known(what) and not hasattr(eval(what), name))

def known(what):
    of = eval(what)
    if callable(of) and not inspect.isclass(of):
        return inspect.signature(of).parameters
    return dir(of) + list(vars(of()) if of is IterationStats else ()) + list(getattr(of, "__annotations__", ()))

wants("vllm", "AsyncEngineArgs", "AsyncLLMEngine", "PoolingParams")
wants("vllm.AsyncLLMEngine", "generate", "encode", "abort", "check_health", "shutdown", "get_supported_tasks", "get_tokenizer")
wants("vllm.AsyncLLMEngine.from_engine_args", "stat_loggers")
wants("vllm.AsyncLLMEngine.generate", "lora_request", "tokenization_kwargs")
wants("vllm.AsyncEngineArgs", "disable_log_stats")
wants("vllm.PoolingParams", "task", "dimensions")
wants("EmbeddingRequestOutput", "from_base")
wants("RequestOutputKind", "DELTA", "FINAL_ONLY")
wants("SamplingParams", "output_kind", "structured_outputs", "max_tokens", "temperature", "n", "logprobs", "logit_bias")
wants("vllm.exceptions", "VLLMClientError", "GracefulHTTPError")
wants("StatLoggerBase", "record", "log_engine_initialized")
wants("IterationStats", "num_prompt_tokens", "num_generation_tokens", "time_to_first_tokens_iter", "inter_token_latencies_iter", "n_params_iter", "finished_requests")
wants("FinishedRequestStats", "e2e_latency", "num_prompt_tokens", "num_generation_tokens")
print("missing:", missing)
"""


def test_vllm_has_every_name_that_the_backend_uses():
    ran = subprocess.run([PYTHON, "-c", NAMES], capture_output=True, text=True, env={**os.environ, **ENV}, timeout=START_SECONDS_MAX)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.splitlines()[-1] == "missing: []"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    root = tmp_path_factory.mktemp("vllm_itself")
    subprocess.run([PYTHON, os.path.join(HERE, "frameworks/vllm_tiny.py"), str(root / "tiny")], check=True, capture_output=True, env={**os.environ, **ENV}, timeout=START_SECONDS_MAX)
    (root / "models/tiny/1").mkdir(parents=True)
    engine = {"model": str(root / "tiny"), "enforce_eager": True, "max_model_len": 256, "dtype": "float32"}
    (root / "models/tiny/1/model.json").write_text(json.dumps(engine))
    (root / "models/tiny/config.pbtxt").write_text('backend: "vllm"\ninstance_group [ { count: 1 kind: KIND_MODEL } ]\n' + parameters(REPORT_CUSTOM_METRICS="true"))
    flags = [f"--backend-config=python,python-executable={PYTHON}", f"--backend-config=python,stub-timeout-seconds={START_SECONDS_MAX}"]
    one = Server(root / "models", "--model-control-mode=explicit", *flags, log=root / "server.log", env=ENV)
    try:
        status, _, body = one.request("POST", "/v2/repository/models/tiny/load", b"{}", timeout=START_SECONDS_MAX)
        assert status == 200, (body, one.tail())
        yield Generates(one, "tiny", root)
        assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    finally:
        assert one.stop() == 0, one.tail()


def test_generates_counts_tokens_and_reports_the_metrics_of_the_engine(model):
    answer = model.generate(text_input="a tensor", max_tokens=8, temperature=0, ignore_eos=True, return_num_output_tokens=True, return_finish_reason=True)
    assert answer["text_output"].startswith("a tensor") and answer["num_output_tokens"] == 8 and answer["finish_reason"] == "length"
    events = model.stream(text_input="a tensor", stream=True, max_tokens=8, temperature=0, ignore_eos=True)
    assert "a tensor" + "".join(event["text_output"] for event in events) == answer["text_output"]
    values = model.server.metrics()
    labels = '{model="tiny",version="1"}'
    assert values[f"vllm:generation_tokens_total{labels}"] == 16
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_prompt_tokens", "request_generation_tokens", "request_params_n"):
        assert values[f"vllm:{name}_count{labels}"] == 2, name
    assert values[f"vllm:time_per_output_token_seconds_count{labels}"] == 14
    assert values[f"vllm:request_generation_tokens_sum{labels}"] == 16


@pytest.mark.parametrize("written", [lambda wanted: wanted, json.dumps])
def test_structured_outputs_are_an_object_or_its_text(model, written):
    wanted = {"choice": ["tensor of rank two", "vector"]}
    sampling = json.dumps({"max_tokens": 32, "structured_outputs": written(wanted)})
    answer = model.generate(text_input="x", sampling_parameters=sampling, exclude_input_in_output=True)
    assert answer["text_output"] in wanted["choice"]


@pytest.mark.parametrize("settings, named", [('{"no_such_setting": 1}', "no_such_setting"), ('{"structured_outputs": ["a"]}', "structured_outputs must be a JSON object")])
def test_settings_that_cannot_be_are_named(model, settings, named):
    status, answer = model.post("generate", text_input="x", sampling_parameters=settings)
    assert status == 400 and named in answer["error"]
