"""The reasons of requests: the field `nereid-why` over each transport, past requests, what a key sees, and the command."""
import http.client
import json
import os
import queue
import shutil
import subprocess
import threading

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from server import COMMAND, OTHER, Server, waits_for
from test_access_log import check_times
from test_keys import make

pytestmark = pytest.mark.skipif(bool(OTHER), reason="no other server explains requests")
CURL = shutil.which("curl")
WHY = {"nereid-why": "1"}
RECORD_BYTES_MAX = 2048
SIMPLE = json.dumps({"id": "s 1", "inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for n in ("INPUT0", "INPUT1")]}).encode()
SLOW = json.dumps({"inputs": [{"name": "INPUT0", "shape": [2], "datatype": "INT32", "data": [1, 2]}]}).encode()


def slow(id):
    return json.dumps({**json.loads(SLOW), "id": id}).encode()


@pytest.fixture(scope="module")
def explained(repositories, tmp_path_factory):
    at = tmp_path_factory.mktemp("why")
    keys = at / "keys.json"
    admin = make(keys, "admin", "--scope=all")
    limited = make(keys, "limited", "--scope=inference,statistics:simple,repeat")
    infers = make(keys, "infers", "--scope=inference")
    # The model `slow` with 10 instead of 300 ms.
    shutil.copytree(repositories / "main" / "slow", at / "models" / "short")
    config = at / "models" / "short" / "config.pbtxt"
    config.write_text(config.read_text().replace('"300"', '"10"'))
    stores = [repositories / "main", f"--model-repository={at / 'models'}"]
    one = Server(*stores, f"--keys-file={keys}", "--model-control-mode=explicit", "--load-model=*", log=at / "why.log")
    one.keys = {"admin": admin, "limited": limited, "infers": infers}
    yield one
    assert one.process.poll() is None, one.tail()
    assert one.stop() == 0, one.tail()


def auth(server, key="admin"):
    return {"Authorization": f"Bearer {server.keys[key]}"}


def post(server, path, body, key="admin", **headers):
    """Status, headers and body of a request over http.client, which reads trailers but shows none."""
    connection = http.client.HTTPConnection(server.http, timeout=30)
    connection.request("POST", path, body, {**auth(server, key), **headers})
    answer = connection.getresponse()
    try:
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def get(server, path, key="admin"):
    connection = http.client.HTTPConnection(server.http, timeout=30)
    connection.request("GET", path, headers=auth(server, key))
    answer = connection.getresponse()
    try:
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def record(text):
    assert text.isascii() and len(text) <= RECORD_BYTES_MAX, text
    value = json.loads(text)
    assert not {"peer", "key", "method", "path"} & set(value), value
    return value


def command(server, *args, key="admin", stdin="", code=0):
    env = {**os.environ, "NEREID_KEY": server.keys[key]} if key else os.environ
    done = subprocess.run([*COMMAND, "why", *args], input=stdin, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def test_a_response_has_the_record_of_its_request_only_if_it_is_asked_for(explained):
    status, headers, body = post(explained, "/v2/models/simple/infer", SIMPLE)
    assert status == 200 and "nereid-why" not in headers
    status, headers, body = post(explained, "/v2/models/simple/infer", SIMPLE, **WHY)
    assert status == 200 and len(headers.get_all("nereid-why")) == 1
    line = record(headers["nereid-why"])
    expected = dict(protocol="http/1.1", verb="infer", model="simple", version="1", id="s 1", status=200, bytes_in=len(SIMPLE), batch=1, cause="idle_instance")
    assert {key: line.get(key) for key in expected} == expected
    assert set(line.get("copied", {})) <= {"in", "out"}
    assert line["phases_us"]["infer"] > 0 and sum(line["phases_us"].values()) <= line["total_us"] + 1


def test_a_rejected_request_has_a_record_with_its_error(explained):
    status, headers, body = post(explained, "/v2/models/simple/infer", b'{"id": "wrong", "inputs": []}', **WHY)
    assert status == 400
    line = record(headers["nereid-why"])
    assert (line["status"], line["code"], line["error"]) == (400, "INVALID_ARGUMENT", json.loads(body)["error"])


@pytest.mark.skipif(not CURL, reason="curl is not here: apt-get install curl")
@pytest.mark.parametrize("version, protocol", [("--http1.1", "http/1.1"), ("--http2-prior-knowledge", "h2")])
def test_a_stream_of_events_has_the_record_in_its_trailer(explained, version, protocol):
    body = json.dumps({"IN": [4, 5, 6], "DELAY": [20, 20, 20], "WAIT": 0}).encode()
    url = f"http://{explained.http}/v2/models/repeat/generate_stream"
    args = [CURL, "-sS", "-N", version, "-D-", "-H", "TE: trailers", "-H", "nereid-why: 1", "-H", f"Authorization: {auth(explained)['Authorization']}", "--data-binary", "@-", url]
    text = subprocess.run(args, input=body, capture_output=True, check=True, timeout=30).stdout.decode()
    fields = [line for line in text.splitlines() if line.lower().startswith("nereid-why:")]
    assert text.count("data:") == 3 and len(fields) == 1, text
    line = record(fields[0].split(":", 1)[1].strip())
    assert (line["protocol"], line["model"], line["responses"]) == (protocol, "repeat", 3)
    assert "code" not in line and line["bytes_out"] > 0, "it is over, and nobody left"
    assert line["phases_us"]["responses"] > 30_000, line
    assert 0 < line["first_response_us"] and line["first_response_us"] + 30_000 <= line["total_us"], "two more came after it"


@pytest.mark.parametrize("stream", ["generate", "generate_stream"])
def test_a_parameter_of_a_generate_request_asks_for_the_record(explained, stream):
    body = json.dumps({"IN": [4], "DELAY": [1], "WAIT": 0, "parameters": {"nereid-why": 1}}).encode()
    args = [CURL, "-sS", "-D-", "-H", "TE: trailers", "-H", f"Authorization: {auth(explained)['Authorization']}", "--data-binary", "@-", f"http://{explained.http}/v2/models/repeat/{stream}"]
    text = subprocess.run(args, input=body, capture_output=True, check=True, timeout=30).stdout.decode()
    fields = [line for line in text.splitlines() if line.lower().startswith("nereid-why:")]
    assert len(fields) == 1 and " 200 " in text, text
    assert record(fields[0].split(":", 1)[1].strip())["model"] == "repeat"


def grpc_request(model="simple", id="g 1", width=16):
    request = service_pb2.ModelInferRequest(model_name=model, id=id)
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="INT32", shape=[1, width])
        request.raw_input_contents.append(np.ones((1, width), np.int32).tobytes())
    return request


def test_a_call_of_grpc_has_the_record_in_its_trailing_metadata(explained):
    key = ("authorization", auth(explained)["Authorization"])
    with grpc.insecure_channel(explained.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        _, call = stub.ModelInfer.with_call(grpc_request(), metadata=[key, ("nereid-why", "1")])
        line = record(dict(call.trailing_metadata())["nereid-why"])
        assert (line["protocol"], line["verb"], line["model"], line["id"], line["grpc_status"]) == ("grpc", "infer", "simple", "g 1", 0)
        _, call = stub.ModelInfer.with_call(grpc_request(), metadata=[key])
        assert "nereid-why" not in dict(call.trailing_metadata())
        with pytest.raises(grpc.RpcError) as told:
            stub.ModelInfer(grpc_request("none", "g 2"), metadata=[key, ("nereid-why", "1")])
        line = record(dict(told.value.trailing_metadata())["nereid-why"])
        assert (line["grpc_status"], line["code"], line["error"]) == (5, "NOT_FOUND", told.value.details())


def test_a_client_of_triton_that_sends_the_header_is_answered_as_before(explained):
    came = queue.Queue()
    headers = {"authorization": auth(explained)["Authorization"], **WHY}
    with tritonclient.grpc.InferenceServerClient(explained.grpc) as client:
        ones = np.ones((1, 16), np.int32)
        inputs = [tritonclient.grpc.InferInput(name, [1, 16], "INT32").set_data_from_numpy(ones) for name in ("INPUT0", "INPUT1")]
        assert (client.infer("simple", inputs, headers=headers).as_numpy("OUTPUT0") == 2 * ones).all()
        client.start_stream(lambda result, error: came.put((result, error)), headers=headers)
        client.async_stream_infer("simple", inputs, request_id="in stream")
        result, error = came.get(timeout=20)
        assert error is None and (result.as_numpy("OUTPUT1") == 0).all()
        client.stop_stream()
    with tritonclient.http.InferenceServerClient(explained.http) as client:
        inputs = [tritonclient.http.InferInput(name, [1, 16], "INT32").set_data_from_numpy(ones) for name in ("INPUT0", "INPUT1")]
        result = client.infer("simple", inputs, headers=headers)
        assert (result.as_numpy("OUTPUT0") == 2 * ones).all()


def test_slow_and_failed_requests_are_kept_and_found_by_id(explained):
    assert post(explained, "/v2/models/slow/infer", slow("slow 1"))[0] == 200
    assert post(explained, "/v2/models/slow/infer", b'{"id": "failed 1", "inputs": []}')[0] == 400
    status, found = get(explained, "/v2/why?id=slow%201")
    assert status == 200 and [one["id"] for one in found["requests"]] == ["slow 1"]
    assert found["requests"][0]["total_us"] >= 300_000
    status, found = get(explained, "/v2/why?id=failed%201")
    assert status == 200 and found["requests"][0]["code"] == "INVALID_ARGUMENT"
    status, listed = get(explained, "/v2/why?model=slow")
    assert status == 200 and listed["minutes"] == 15
    assert {one["model"] for group in listed["slowest"] for one in group["requests"]} == {"slow"}
    assert any(one["id"] == "failed 1" for group in listed["failed"] for one in group["requests"])
    status, missing = get(explained, "/v2/why?id=never")
    assert status == 404 and "never" in missing["error"] and "slowest" in missing["error"]


def test_requests_that_fail_have_their_ids_and_models_also_on_a_busy_server(explained):
    """The first 32 of a minute are recorded from their head on; later ones when they fail."""
    body = b'{"id": "busy", "inputs": []}'
    assert {post(explained, "/v2/models/simple/infer", body)[0] for _ in range(40)} == {400}
    assert post(explained, "/v2/models/simple/infer", b'{"id": "failed 2", "inputs": []}')[0] == 400
    key = ("authorization", auth(explained)["Authorization"])
    with grpc.insecure_channel(explained.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        wrong = {"shape": grpc_request("simple", "failed 3", width=15), "none": grpc_request("none", "failed 4")}
        for request in wrong.values():
            with pytest.raises(grpc.RpcError):
                stub.ModelInfer(request, metadata=[key])
        answers = list(stub.ModelStreamInfer(iter([grpc_request("simple", "failed 5", width=14)]), metadata=[key]))
        assert answers[0].error_message
    body = json.dumps({"id": "late", "IN": [4, 5], "DELAY": [60, 60], "WAIT": 0}).encode()
    assert post(explained, "/v2/models/repeat/generate_stream", body)[0] == 200
    status, found = get(explained, "/v2/why?model=repeat")
    streams = [one for group in found["slowest"] for one in group["requests"] if one["total_us"] > 110_000]
    assert streams and streams[0]["phases_us"]["responses"] > 50_000, found
    for id, model, code in [
        ("failed 2", "simple", "INVALID_ARGUMENT"), ("failed 3", "simple", "INVALID_ARGUMENT"),
        ("failed 4", "none", "NOT_FOUND"), ("failed 5", "simple", "INVALID_ARGUMENT"),
    ]:
        status, found = get(explained, "/v2/why?id=" + id.replace(" ", "%20"))
        assert status == 200, (id, found)
        assert [(one["id"], one["model"], one["code"]) for one in found["requests"]] == [(id, model, code)]


def test_a_request_that_waited_names_what_it_waited_behind(explained):
    first = threading.Thread(target=post, args=(explained, "/v2/models/slow/infer", slow("first")))
    first.start()
    waits_for(lambda: explained.metrics()["nereid_inflight_requests"] > 0, "the first request runs")
    _, headers, _ = post(explained, "/v2/models/slow/infer", slow("second"), **WHY)
    first.join()
    line = record(headers["nereid-why"])
    assert line["cause"] == "instance_freed" and line["behind"]["model"] == "slow", line
    text = command(explained, "-", stdin=f"HTTP/1.1 200 OK\r\nnereid-why: {headers['nereid-why']}\r\n\r\n")
    assert "slow version 1 had all instances" in text and "all instances were busy, and one became free" in text


def test_a_key_sees_what_its_scopes_cover_and_needs_statistics(explained):
    assert post(explained, "/v2/models/slow/infer", slow("hidden"))[0] == 200
    status, told = get(explained, "/v2/why", key="infers")
    assert status == 403, told
    assert get(explained, "/v2/why", key="infers")[0] == 403
    assert get(explained, "/v2/why?model=slow", key="limited")[0] == 403
    status, told = get(explained, "/v2/why", key="limited")
    groups = told["slowest"] + told["failed"]
    assert status == 200 and {one["model"] for group in groups for one in group["requests"]} <= {"simple", "repeat"}
    assert get(explained, "/v2/models/slow/why", key="limited")[0] == 403
    assert get(explained, "/v2/models/simple/why", key="infers")[0] == 403
    assert get(explained, "/v2/models/simple/why", key="limited")[0] == 200


def test_a_model_outside_the_scopes_of_a_key_is_another_model(repositories, tmp_path):
    """Two models share a resource of the rate limiter, so a request to one waits behind the other."""
    config = (repositories / "main" / "slow" / "config.pbtxt").read_text()
    for name in ("secret", "open"):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        limited = config.replace("count: 1 kind: KIND_CPU", 'count: 1 kind: KIND_CPU rate_limiter { resources [ { name: "R" global: true count: 1 } ] }')
        (tmp_path / "models" / name / "config.pbtxt").write_text(limited)
    keys = tmp_path / "keys.json"
    made = {"admin": make(keys, "admin", "--scope=all"), "limited": make(keys, "limited", "--scope=inference,statistics:open")}
    flags = [f"--keys-file={keys}", "--rate-limit=execution_count", "--rate-limit-resource=R:1"]
    server = Server(tmp_path / "models", *flags, log=tmp_path / "limited.log")
    server.keys = made
    try:
        own, others = {"model": "secret", "version": "1", "for": "resources"}, {"model": "another model", "for": "resources"}
        for key, behind in (("admin", own), ("limited", others)):
            first = threading.Thread(target=post, args=(server, "/v2/models/secret/infer", SLOW))
            first.start()
            waits_for(lambda: server.metrics()["nereid_inflight_requests"] > 0, "the first request runs")
            status, headers, _ = post(server, "/v2/models/open/infer", SLOW, key=key, **WHY)
            first.join()
            found = record(headers["nereid-why"])["behind"]
            assert status == 200 and {name: found[name] for name in ("model", "version", "for") if name in found} == behind, found
        text = command(server, "open", f"--url=http://{server.http}", key="limited")
        assert text.startswith("open version 1") and "secret" not in text, text
    finally:
        assert server.stop() == 0, server.tail()


def test_the_command_explains_a_record_a_request_a_model_and_a_server(explained):
    url = f"--url=http://{explained.http}"
    _, headers, _ = post(explained, "/v2/models/slow/infer", slow("told"), **WHY)
    text = command(explained, headers["nereid-why"])
    assert text.startswith("slow version 1, request 'told': answered with 200 after 3") and "computing" in text, text
    assert json.loads(command(explained, headers["nereid-why"], "--json")) == json.loads(headers["nereid-why"])

    text = command(explained, url, "--id", "told")
    assert text.startswith("slow version 1, request 'told'"), text
    assert json.loads(command(explained, url, "--id=told", "--json"))["requests"][0]["id"] == "told"
    # The busy machine may have made others slower, and three of a reason are listed.
    assert "slow version 1, id " in command(explained, url)
    text = command(explained, "slow", url)
    assert text.startswith("slow version 1, the last ") and "Where the time went" in text and "What to change" in text, text
    assert command(explained, "slow", url, "--version=1").startswith("slow version 1")
    assert "Not simulated" in command(explained, "slow", url, "--simulate", "instances=2")
    for number in range(60):
        assert post(explained, "/v2/models/short/infer", SLOW)[0] == 200
    text = command(explained, "short", url, "--simulate", "instances=2")
    assert "The same requests with instances=2:\n  expected: " in text, text


def test_the_command_says_what_is_wrong_and_what_to_do(explained):
    url = f"--url=http://{explained.http}"
    assert "NEREID_KEY" in command(explained, "slow", url, key=None, code=1)
    assert "the permission of statistics" in command(explained, "slow", url, key="infers", code=1)
    assert "'nosuch'" in command(explained, "nosuch", url, code=1)
    assert "never" in command(explained, url, "--id=never", code=1)
    assert "no answer" in command(explained, "slow", "--url=http://127.0.0.1:1", code=1)
    assert "nereid-why: 1" in command(explained, "-", stdin="nothing here", code=1)
    assert "'a' and 'b'" in command(explained, "a", "b", code=2)
    assert "got 'x'" in command(explained, "slow", url, "--simulate=x", code=2)
    assert "http://" in command(explained, "slow", "--url=localhost", code=2)


def test_a_server_without_reasons_is_recognised():
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Without(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(400)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Without) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run([*COMMAND, "why", "simple", f"--url=http://127.0.0.1:{server.server_port}"], capture_output=True, text=True, timeout=60)
        server.shutdown()
    assert done.returncode == 1 and "does not explain requests" in done.stderr, done.stderr
