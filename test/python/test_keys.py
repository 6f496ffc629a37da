"""Keys, scopes and quotas over both ports, with the clients and tools that people use: tritonclient, curl, and `nereid key`."""
import json
import os
import shutil
import subprocess
import threading
import time

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from server import COMMAND, OTHER, Server, waits_for

CURL = shutil.which("curl")
pytestmark = pytest.mark.skipif(bool(OTHER), reason="keys are this server's own")

A, B = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)


def make(path, name, *options):
    """A key made by `nereid key`."""
    made = subprocess.run([*COMMAND, "key", str(path), f"--name={name}", *options], check=True, capture_output=True, text=True, timeout=60)
    return made.stdout.strip()


class Keyed:
    def __init__(self, directory, repository):
        self.path = directory / "keys.json"
        self.infer = make(self.path, "infer", "--scope=inference,metadata,health:simple,simple_s*")
        self.admin = make(self.path, "admin", "--scope=all")
        self.reader = make(self.path, "reader", "--scope=all:read")
        self.one = make(self.path, "one", "--scope=inference:simple", "--concurrency=1")
        self.slow = make(self.path, "slow", "--scope=inference:simple", "--requests-per-second=0.05", "--burst=2")
        self.bytes = make(self.path, "bytes", "--scope=inference:simple", "--bytes-per-second=100")
        self.server = Server(repository, f"--keys-file={self.path}", "--allow-client-shm=true", "--model-control-mode=explicit", "--load-model=*", log=directory / "keys.log")


@pytest.fixture(scope="module")
def keyed(tmp_path_factory, repositories):
    one = Keyed(tmp_path_factory.mktemp("keys"), repositories / "main")
    yield one
    assert one.server.process.poll() is None, one.server.tail()
    assert one.server.stop() == 0, one.server.tail()


def inputs(module):
    both = [module.InferInput("INPUT0", [1, 16], "INT32"), module.InferInput("INPUT1", [1, 16], "INT32")]
    both[0].set_data_from_numpy(A)
    both[1].set_data_from_numpy(B)
    return both


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def api_key(key):
    return {"x-api-key": key}


@pytest.fixture(params=["http", "grpc"])
def transport(request, keyed):
    """`(module, client, address)` of one of the ports."""
    module = getattr(tritonclient, request.param)
    with module.InferenceServerClient(getattr(keyed.server, request.param)) as client:
        yield module, client


def refused(call, *texts):
    with pytest.raises(InferenceServerException) as e:
        call()
    text = f"{e.value.status()} {e.value.message()}"
    assert all(one in text for one in texts), text
    return text


CODES = {"http": {16: "401", 7: "403", 8: "429"}, "grpc": {16: "UNAUTHENTICATED", 7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED"}}


def codes(module):
    return CODES["http" if module is tritonclient.http else "grpc"]


@pytest.mark.parametrize("form", [bearer, api_key])
def test_a_key_opens_the_models_of_its_scope(keyed, transport, form):
    module, client = transport
    headers = form(keyed.infer)
    result = client.infer("simple", inputs(module), headers=headers)
    assert (result.as_numpy("OUTPUT0") == A + B).all()
    client.get_model_metadata("simple", headers=headers)
    client.get_server_metadata(headers=headers)
    assert client.is_model_ready("simple", headers=headers)
    other = refused(lambda: client.get_model_metadata("identity_fp32", headers=headers), codes(module)[7], "The key 'infer' has no scope for metadata of model 'identity_fp32'")
    assert keyed.infer not in other
    refused(lambda: client.get_model_config("simple", headers=headers), codes(module)[7], "model-config")
    refused(lambda: client.get_model_repository_index(headers=headers), codes(module)[7], "model-repository")
    refused(lambda: client.unload_model("simple", headers=headers), codes(module)[7], "model-repository (changes)")
    refused(lambda: client.get_inference_statistics(headers=headers), codes(module)[7], "statistics")


def test_without_a_key_there_is_health_only(transport):
    module, client = transport
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("simple")
    for call in [
        lambda: client.infer("simple", inputs(module)),
        lambda: client.get_server_metadata(),
        lambda: client.get_model_repository_index(),
        lambda: client.get_log_settings(),
        lambda: client.update_log_settings({"log_verbose_level": 1}),
        lambda: client.get_system_shared_memory_status(),
        lambda: client.load_model("simple"),
    ]:
        refused(call, codes(module)[16], "Authorization: Bearer")


@pytest.mark.parametrize("key", ["wrong", "nk_" + "a" * 43, "a" * 512, "a" * 5000, "a.b.c", "eyJhbGciOiJub25lIn0.e30."])
def test_a_key_that_is_wrong_is_refused_even_where_none_is_needed(keyed, transport, key):
    module, client = transport
    for headers in (bearer(key), api_key(key)):
        text = refused(lambda: client.infer("simple", inputs(module), headers=headers), codes(module)[16])
        assert key not in text
        refused(lambda: client.get_server_metadata(headers=headers), codes(module)[16])


def test_a_scope_that_reads_changes_nothing(keyed, transport):
    module, client = transport
    headers = bearer(keyed.reader)
    client.get_log_settings(headers=headers)
    client.get_model_repository_index(headers=headers)
    refused(lambda: client.update_log_settings({"log_verbose_level": 0}, headers=headers), codes(module)[7], "logging (changes)")
    refused(lambda: client.update_trace_settings("simple", {"trace_rate": "9"}, headers=headers), codes(module)[7], "trace (changes) of model 'simple'")
    refused(lambda: client.unload_model("simple", headers=headers), codes(module)[7])
    refused(lambda: client.register_system_shared_memory("r", "/nereid_none", 8, headers=headers), codes(module)[7])
    admin = bearer(keyed.admin)
    client.update_log_settings({"log_verbose_level": 0}, headers=admin)
    client.load_model("simple", headers=admin)
    assert client.infer("simple", inputs(module), headers=admin)


def test_a_scope_with_models_does_not_read_settings_of_all(keyed, transport, tmp_path):
    module, client = transport
    refused(lambda: client.get_trace_settings(headers=bearer(keyed.infer)), codes(module)[7], "trace")


def test_quotas_of_rate_and_bytes_say_when_to_come_again(keyed, transport):
    module, client = transport
    # Both ports share the bucket: whoever is first has the burst.
    answers = []
    for _ in range(3):
        try:
            client.infer("simple", inputs(module), headers=bearer(keyed.slow))
            answers.append("ok")
        except InferenceServerException as e:
            answers.append(f"{e.status()} {e.message()}")
    assert codes(module)[8] in answers[-1] and "used up the quota 'requests_per_second'; try again in" in answers[-1], answers
    for _ in range(2):
        try:
            client.infer("simple", inputs(module), headers=bearer(keyed.bytes))
        except InferenceServerException:
            pass
    refused(lambda: client.infer("simple", inputs(module), headers=bearer(keyed.bytes)), codes(module)[8], "bytes_per_second")


def curl(keyed, path, *args):
    out = subprocess.run([CURL, "-sS", "-i", *args, f"http://{keyed.server.http}{path}"], check=True, capture_output=True, timeout=60).stdout.decode()
    head, _, body = out.partition("\r\n\r\n")
    status, *fields = head.split("\r\n")
    return int(status.split()[1]), {k.lower(): v for k, v in (f.split(": ", 1) for f in fields)}, body


@pytest.mark.skipif(not CURL, reason="curl is not here: apt-get install curl")
@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_curl_sees_401_403_and_429_with_what_to_do(keyed, version):
    status, fields, body = curl(keyed, "/v2", version)
    assert (status, fields["www-authenticate"]) == (401, "Bearer") and "X-API-Key" in json.loads(body)["error"]
    status, _, body = curl(keyed, "/v2/models/identity_fp32", version, "-H", f"X-API-Key: {keyed.infer}")
    assert status == 403 and "identity_fp32" in json.loads(body)["error"]
    for _ in range(3):
        status, fields, body = curl(keyed, "/v2/models/simple/infer", version, "-H", f"Authorization: Bearer {keyed.slow}", "-d", "{}")
    assert status == 429 and 1 <= int(fields["retry-after"]) <= 60, (status, fields)
    status, _, _ = curl(keyed, "/v2/models/simple", version, "-H", f"X-API-Key: {keyed.slow}", "-H", f"Authorization: Bearer {keyed.infer}")
    assert status == 200, "the bearer token goes before the other"


def test_a_quota_of_concurrency_is_returned_when_a_stream_or_its_client_ends(keyed):
    metadata = [("authorization", f"Bearer {keyed.one}")]
    with grpc.insecure_channel(keyed.server.grpc) as channel:
        stub, request = simple(channel)
        for ending in ("ends", "leaves"):
            go = threading.Event()

            def messages():
                yield request
                go.wait(30)

            stream = stub.ModelStreamInfer(messages(), metadata=metadata)
            assert not next(iter(stream)).error_message
            with pytest.raises(grpc.RpcError) as e:
                stub.ModelInfer(request, metadata=metadata)
            assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "'concurrency'" in e.value.details()
            assert ("grpc-retry-pushback-ms", "1000") in [tuple(pair) for pair in e.value.trailing_metadata()]
            if ending == "leaves":
                stream.cancel()
            go.set()
            waits_for(lambda: free(stub, request, metadata), f"a stream that {ending} gives its place back")


def simple(channel):
    """The calls of a channel, and a request to the model `simple`."""
    request = service_pb2.ModelInferRequest(model_name="simple")
    for name, data in (("INPUT0", A), ("INPUT1", B)):
        request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        request.raw_input_contents.append(data.tobytes())
    return service_pb2_grpc.GRPCInferenceServiceStub(channel), request


def free(stub, request, metadata):
    try:
        stub.ModelInfer(request, metadata=metadata)
    except grpc.RpcError:
        return False
    return True


def replace(path, change):
    file = json.loads(path.read_text())
    change(file)
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps(file))
    os.replace(fresh, path)


def test_keys_come_and_go_on_connections_that_stay(keyed, transport):
    module, client = transport
    name = f"new-{module.__name__.rsplit('.')[-1]}"
    key = make(keyed.path, name, "--scope=inference:simple")
    begun = time.monotonic()

    def works():
        try:
            client.infer("simple", inputs(module), headers=bearer(key))
        except InferenceServerException:
            return False
        return True

    waits_for(works, "a key that was added is taken")
    assert time.monotonic() - begun < 3
    # An invalid file is logged with the position of the error, and the keys stay.
    good = keyed.path.read_text()
    keyed.path.write_text("{\n  \"keys\": 7\n}")
    keyed.server.logged("line 2, column")
    assert works()
    keyed.path.write_text(good)
    replace(keyed.path, lambda file: file["keys"].pop())
    waits_for(lambda: not works(), "a key that was taken away is refused")
    refused(lambda: client.infer("simple", inputs(module), headers=bearer(key)), codes(module)[16], "unknown to this server")
    assert client.infer("simple", inputs(module), headers=bearer(keyed.infer))


def test_a_stream_whose_key_is_taken_away_ends_its_requests(keyed):
    key = make(keyed.path, "stream", "--scope=inference:simple")
    metadata = [("x-api-key", key)]
    with grpc.insecure_channel(keyed.server.grpc) as channel:
        stub, request = simple(channel)
        waits_for(lambda: free(stub, request, metadata), "the key is taken")
        more = threading.Semaphore(1)

        def messages():
            while True:
                more.acquire()
                yield request

        stream = stub.ModelStreamInfer(messages(), metadata=metadata)
        answers = iter(stream)
        assert not next(answers).error_message
        more.release()
        assert not next(answers).error_message
        replace(keyed.path, lambda file: file["keys"].pop())
        waits_for(lambda: not free(stub, request, metadata), "the key is taken away")
        more.release()
        assert "The key 'stream' was removed from the keys file" in next(answers).error_message
        # The stream itself stays: what it asked before is answered.
        stream.cancel()


def test_metrics_count_requests_by_key(keyed):
    headers = api_key(keyed.infer)
    with tritonclient.http.InferenceServerClient(keyed.server.http) as client:
        client.infer("simple", inputs(tritonclient.http), headers=headers)
        refused(lambda: client.get_server_metadata(headers=api_key("wrong")), "401")
    text = keyed.server.metrics()
    text = text if isinstance(text, str) else "\n".join(text)
    assert 'nereid_key_requests_total{key="infer",result="admitted"}' in text
    assert 'nereid_key_requests_total{key="",result="unknown"}' in text
    assert 'nereid_key_requests_total{key="slow",result="exhausted"}' in text
    assert 'nereid_key_bytes_total{key="infer"}' in text
    assert keyed.infer not in text


def test_the_port_of_the_metrics_asks_for_no_key_and_shows_the_names_of_models(keyed):
    """Metrics need no key (docs/security.md): only the address of the port protects them."""
    code = "%{http_code}"
    index = subprocess.run([CURL, "-s", "-w", code, "-X", "POST", f"{keyed.server.http}/v2/repository/index"], capture_output=True, text=True, timeout=60).stdout
    assert index.endswith("401") and "simple" not in index
    scraped = subprocess.run([CURL, "-s", "-w", code, f"127.0.0.1:{keyed.server.metrics_port}/metrics"], capture_output=True, text=True, timeout=60).stdout
    assert scraped.endswith("200")
    assert 'nv_inference_request_success{model="simple",version="1"}' in scraped


def test_restricted_apis_ask_for_their_header_beside_the_key(tmp_path, repositories, start):
    path = tmp_path / "keys.json"
    key = make(path, "all", "--scope=all")
    server = start(repositories / "small", f"--keys-file={path}", "--http-restricted-api=inference:admin-key=s3cret", "--grpc-restricted-protocol=inference:admin-key=s3cret")
    for module, address, name in ((tritonclient.http, server.http, "admin-key"), (tritonclient.grpc, server.grpc, "triton-grpc-protocol-admin-key")):
        with module.InferenceServerClient(address) as client:
            call = lambda **headers: client.infer("simple", inputs(module), headers=headers)  # noqa: E731
            refused(lambda: call(authorization=f"Bearer {key}"), "expecting header")
            refused(lambda: call(**{name: "s3cret"}), codes(module)[16])
            assert call(authorization=f"Bearer {key}", **{name: "s3cret"})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{\n \"kes\": []}", "line 2"),
        ("{\"keys\": [{\"name\": \"a\", \"sha256\": \"secret\", \"scopes\": []}]}", "keys[0].sha256: a hash is 64 hexadecimal digits"),
        (None, "can not be read"),
    ],
)
def test_a_file_that_is_wrong_is_an_error_at_start(tmp_path, repositories, text, error):
    path = tmp_path / "keys.json"
    if text is not None:
        path.write_text(text)
    server = Server(repositories / "small", f"--keys-file={path}", log=tmp_path / "wrong.log", wait=False)
    assert server.wait() == 1
    output = server.output()
    assert f"{path}" in output and error in output, output
    assert "secret" not in output
