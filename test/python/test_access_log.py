"""The access log and the audit log: each field against what was sent, with the clients that people use."""
import base64
import hashlib
import json
import os
import queue
import re
import shutil
import stat
import subprocess
import time
from datetime import datetime, timezone

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from server import OTHER, ROOT
from test_keys import make

CURL = shutil.which("curl")
A, B = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)
PHASES = ["read", "parse", "queue", "input", "infer", "output", "encode", "write"]


class Log:
    """Lines of a log, taken in the order they came."""

    def __init__(self, path):
        self.path = path
        self.taken = 0

    def lines(self):
        if not os.path.exists(self.path):
            return []
        with open(self.path, "rb") as f:
            text = f.read()
        whole = text[: text.rfind(b"\n") + 1]
        return [json.loads(line) for line in whole.decode().splitlines()]

    def take(self, count=1, seconds=10):
        """The next lines, once so many are there."""
        end = time.monotonic() + seconds
        while len(lines := self.lines()[self.taken :]) < count:
            assert time.monotonic() < end, f"{len(lines)} lines, {count} expected: {lines}"
            time.sleep(0.01)
        assert len(lines) == count, lines
        self.taken += count
        return lines if count > 1 else lines[0]

    def until(self, found, seconds=10):
        """Takes all up to the one that is looked for."""
        end = time.monotonic() + seconds
        while True:
            for at, line in enumerate(self.lines()[self.taken :]):
                if found(line):
                    self.taken += at + 1
                    return line
            assert time.monotonic() < end, self.lines()[self.taken :]
            time.sleep(0.01)


def inputs(module, array=A):
    made = []
    for name, values in (("INPUT0", array), ("INPUT1", B)):
        one = module.InferInput(name, values.shape, "INT32")
        one.set_data_from_numpy(values)
        made.append(one)
    return made


@pytest.fixture(scope="module")
def logged(repositories, tmp_path_factory):
    """A server with both logs, the logs behind what its start wrote."""
    from server import Server

    at = tmp_path_factory.mktemp("logs")
    one = Server(
        repositories / "main", "--model-control-mode=explicit", "--load-model=*", "--allow-client-shm=true", f"--access-log={at}/access.log", f"--audit-log={at}/audit.log", log=at / "server.log"
    )
    one.access, one.audit = Log(at / "access.log"), Log(at / "audit.log")
    yield one
    assert one.process.poll() is None, one.tail()
    assert one.stop() == 0, one.tail()


@pytest.fixture
def logs(logged):
    """The server, with nothing left of what came before."""
    settle(logged)
    return logged


def settle(server):
    server.get(f"/v2/models/settle/versions/{time.monotonic_ns()}/ready", check=False)
    mark = server.access.until(lambda line: line.get("model") == "settle")
    assert mark["status"] in (400, 404), mark
    server.audit.taken = len(server.audit.lines())


def check_times(line, phases=PHASES):
    """Each phase once, in order, together the whole."""
    assert list(line["phases_us"]) == phases, line
    assert all(us >= 0 for us in line["phases_us"].values()), line
    rounding = 0.1 * (len(phases) + 1)
    assert abs(sum(line["phases_us"].values()) - line["total_us"]) <= rounding, line
    came = datetime.strptime(line["time"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"])
    assert abs(time.time() - came.timestamp()) < 30, line


def test_an_inference_over_http_has_a_line_with_everything(logs):
    with tritonclient.http.InferenceServerClient(logs.http) as client:
        client.infer("simple", inputs(tritonclient.http), request_id="a 1")
    line = logs.access.take()
    host, port = line["peer"].rsplit(":", 1)
    assert host == "127.0.0.1" and 0 < int(port) < 65536
    expected = dict(protocol="http/1.1", method="POST", path="/v2/models/simple/infer", verb="infer", model="simple", version="1", id="a 1", status=200, batch=1)
    assert {key: line.get(key) for key in expected} == expected
    # A head of JSON, and the tensors behind it.
    assert 128 < line["bytes_in"] < 1000 and line["bytes_out"] > 128
    assert not {"code", "error", "key", "responses", "in_stream", "trace"} & set(line)
    check_times(line)


@pytest.mark.skipif(not CURL, reason="curl is not here: apt-get install curl")
@pytest.mark.parametrize("version, protocol", [("--http1.0", "http/1.0"), ("--http1.1", "http/1.1"), ("--http2-prior-knowledge", "h2")])
def test_each_version_of_http_is_named_and_sizes_are_those_of_bodies(logs, version, protocol):
    body = json.dumps({"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for n in ("INPUT0", "INPUT1")]}).encode()
    command = [CURL, "-sS", version, "--data-binary", "@-", f"http://{logs.http}/v2/models/simple/versions/1/infer?a=secret"]
    answer = subprocess.run(command, input=body, capture_output=True, check=True, timeout=30).stdout
    line = logs.access.take()
    assert (line["protocol"], line["bytes_in"], line["bytes_out"], line["status"]) == (protocol, len(body), len(answer), 200)
    assert line["path"] == "/v2/models/simple/versions/1/infer", "without the query"
    check_times(line)


def test_requests_that_are_no_inference_have_lines_too(logs):
    for method, path, verb, status, more in [
        ("GET", "/v2/health/live", "server_live", 200, {}),
        ("GET", "/v2/models/simple", "model_metadata", 200, {"model": "simple"}),
        ("GET", "/v2/models/none/config", "model_config", 404, {"model": "none", "code": "NOT_FOUND"}),
        ("POST", "/v2/repository/index", "index", 200, {}),
        ("GET", "/nowhere", "unknown", 404, {"code": "NOT_FOUND", "error": "Not Found"}),
        ("DELETE", "/v2", "server_metadata", 405, {"method": "DELETE", "code": "UNIMPLEMENTED"}),
        ("GET", "/v2/systemsharedmemory/region/r%20x/status", "system_region_status", 404, {"region": "r%20x"}),
    ]:
        got, _, body = logs.request(method, path, body=b"" if method == "POST" else None)
        line = logs.access.take()
        assert (got, line["status"], line["verb"], line["path"]) == (status, status, verb, path), line
        assert {key: line.get(key) for key in more} == more
        assert line["bytes_out"] == len(body)
        if status != 200:
            assert line["error"] == json.loads(body)["error"]


def test_a_refused_inference_says_why(logs):
    with tritonclient.http.InferenceServerClient(logs.http) as client, pytest.raises(InferenceServerException) as told:
        client.infer("simple", inputs(tritonclient.http, np.zeros((1, 8), np.int32)), request_id="short")
    line = logs.access.take()
    assert (line["status"], line["code"], line["model"], line["id"]) == (400, "INVALID_ARGUMENT", "simple", "short")
    assert line["error"] == told.value.message()
    assert "queue" not in line["phases_us"]


def test_calls_of_grpc(logs):
    with tritonclient.grpc.InferenceServerClient(logs.grpc) as client:
        client.infer("simple", inputs(tritonclient.grpc), request_id="g")
        line = logs.access.take()
        expected = dict(protocol="grpc", path="/inference.GRPCInferenceService/ModelInfer", verb="infer", model="simple", version="1", id="g", grpc_status=0, batch=1)
        assert {key: line.get(key) for key in expected} == expected
        assert line["bytes_in"] > 128 and line["bytes_out"] > 128 and "status" not in line
        check_times(line)

        with pytest.raises(InferenceServerException) as told:
            client.infer("none", inputs(tritonclient.grpc), request_id="h")
        line = logs.access.take()
        assert (line["grpc_status"], line["code"], line["model"], line["id"]) == (5, "NOT_FOUND", "none", "h")
        assert line["error"] == told.value.message()

        client.get_model_metadata("simple", "1")
        line = logs.access.take()
        assert (line["verb"], line["model"], line["version"], line["grpc_status"]) == ("model_metadata", "simple", "1", 0)
        assert client.is_server_ready()
        assert logs.access.take()["verb"] == "server_ready"


def test_each_request_of_a_stream_has_a_line_and_the_stream_one(logs):
    from test_decoupled import repeat_inputs

    came = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(logs.grpc) as client:
        client.start_stream(lambda result, error: came.put((result, error)))
        client.async_stream_infer("repeat", repeat_inputs(range(4), [30] * 4), request_id="many")
        for _ in range(4):
            assert came.get(timeout=20)[1] is None
        many = logs.access.take()
        client.async_stream_infer("simple", inputs(tritonclient.grpc), request_id="one")
        assert came.get(timeout=20)[1] is None
        one = logs.access.take()
        client.async_stream_infer("none", inputs(tritonclient.grpc), request_id="none")
        error = came.get(timeout=20)[1]
        none = logs.access.take()
        client.stop_stream()
    whole = logs.access.take()
    assert (many["model"], many["id"], many["grpc_status"], many["responses"], many["in_stream"]) == ("repeat", "many", 0, 4, True)
    # Three pauses lie between the first and the last.
    assert many["total_us"] - many["first_response_us"] >= 3 * 25_000
    assert (one["model"], one["responses"], one["grpc_status"]) == ("simple", 1, 0)
    check_times(one)
    assert (none["grpc_status"], none["code"], none["model"], none["id"]) == (5, "NOT_FOUND", "none", "none")
    assert error.message().endswith(none["error"])
    assert (whole["verb"], whole["requests"], whole["grpc_status"]) == ("stream", 3, 0)
    assert len({line["peer"] for line in (many, one, none, whole)}) == 1


def test_events_over_http_are_counted(logs):
    body = json.dumps({"IN": 3, "DELAY": 0, "WAIT": 0, "id": "e"}).encode()
    status, _, text = logs.request("POST", "/v2/models/repeat/generate_stream", body=json.dumps({"IN": [5, 6, 7], "DELAY": [20, 20, 20], "WAIT": 0, "id": "e"}).encode())
    line = logs.access.take()
    assert (line["verb"], line["model"], line["status"], status) == ("generate_stream", "repeat", 200, 200), (line, text, body)
    assert line["responses"] == text.count(b"data: ") == 3
    assert line["total_us"] - line["first_response_us"] >= 2 * 15_000


def test_a_client_that_leaves_has_a_line(logs):
    import socket

    body = json.dumps({"IN": [1], "DELAY": [60_000], "WAIT": 60_000}).encode()
    with socket.create_connection(("127.0.0.1", logs.http_port)) as s:
        s.sendall(b"POST /v2/models/repeat/generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        # The model has it: its client leaves in the middle of the wait.
        end = time.monotonic() + 10
        while logs.metrics()["nereid_inflight_requests"] == 0:
            assert time.monotonic() < end
    line = logs.access.take()
    assert (line["status"], line["code"], line["model"]) == (499, "CANCELLED", "repeat")


def test_what_clients_send_cannot_forge_a_line(logs):
    forged = '"}\n{"time":"1970-01-01T00:00:00.000000Z","status":200,"model":"forged"}\n\x1b[2J\u2028\u0085\u202e'
    with tritonclient.grpc.InferenceServerClient(logs.grpc) as client:
        for model, id in ((forged, ""), ("simple", forged), (forged, forged), ("x" * 5000, "y" * 5000)):
            try:
                client.infer(model, inputs(tritonclient.grpc), request_id=id)
            except InferenceServerException:
                pass
            line = logs.access.take()
            assert line["model"] == (model if len(model) <= 256 else "x" * 256 + "…")
            assert line.get("id", "") == (id if len(id) <= 256 else "y" * 256 + "…")
    for path in ("/v2/models/%22%0aü\u0085\u2028/infer".encode(), b'/v2/models/a"},{"b":"/infer', b"/" + b"p" * 4000):
        import socket

        with socket.create_connection(("127.0.0.1", logs.http_port)) as s:
            s.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while s.recv(4096):
                pass
        line = logs.access.take()
        assert line["path"] == path[:1024].decode(errors="replace") + ("…" if len(path) > 1024 else "")
    with open(logs.access.path, "rb") as f:
        text = f.read().decode()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]", text)
    assert not any(line.get("model") == "forged" for line in logs.access.lines())


def test_modes_of_the_files_and_counts(logs):
    for log, name in ((logs.access, "access"), (logs.audit, "audit")):
        assert stat.S_IMODE(os.stat(log.path).st_mode) & 0o137 == 0
        metrics = logs.metrics()
        assert metrics[f"nereid_{name}_log_lines_total"] == len(log.lines())
        for reason in ("queue_full", "error"):
            assert metrics[f'nereid_{name}_log_lines_lost_total{{reason="{reason}"}}'] == 0
        assert metrics[f"nereid_{name}_log_waiting_bytes"] <= metrics[f"nereid_{name}_log_waiting_bytes_max"]


def onnx(name):
    import glob

    (found,) = glob.glob(os.path.join(ROOT, f"examples/models/{name}/1/model.onnx"))
    with open(found, "rb") as f:
        return f.read()


CONFIG = '{"backend": "onnxruntime"}'


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_loads_are_audited_with_hashes_in_the_place_of_files(logs, module):
    model = onnx("simple")
    url = logs.http if module is tritonclient.http else logs.grpc
    with module.InferenceServerClient(url) as client:
        client.load_model("given", config=CONFIG, files={"file:1/model.onnx": model})
        line = logs.audit.take()
        assert (line["verb"], line["model"], line["origin"]) == ("load", "given", "loopback")
        assert line["protocol"] == ("http/1.1" if module is tritonclient.http else "grpc")
        assert line["peer"].startswith("127.0.0.1:") and line["duration_us"] > 0
        digest = lambda data: hashlib.sha256(data).hexdigest()
        assert line["parameters"] == {
            "config": {"bytes": len(CONFIG), "sha256": digest(CONFIG.encode())},
            "files": [{"name": "1/model.onnx", "bytes": len(model), "sha256": digest(model)}],
        }
        client.unload_model("given", unload_dependents=True)
        line = logs.audit.take()
        assert (line["verb"], line["model"], line["parameters"]) == ("unload", "given", {"unload_dependents": True})
        with pytest.raises(InferenceServerException) as told:
            client.load_model("never")
        line = logs.audit.take()
        assert line["verb"] == "load" and line["model"] == "never"
        assert line["error"] == told.value.message()
        if module is tritonclient.http:
            assert line["status"] == 500
        else:
            assert line["grpc_status"] != 0


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_regions_and_settings_are_audited_and_reading_is_not(logs, module):
    url = logs.http if module is tritonclient.http else logs.grpc
    with open("/dev/shm/nereid_audit", "wb") as f:
        f.write(bytes(64))
    try:
        with module.InferenceServerClient(url) as client:
            client.register_system_shared_memory("r1", "/nereid_audit", 64)
            line = logs.audit.take()
            assert (line["verb"], line["region"], line["parameters"]) == ("system_region_register", "r1", {"key": "/nereid_audit", "offset": 0, "byte_size": 64})
            client.get_system_shared_memory_status()
            client.unregister_system_shared_memory("r1")
            line = logs.audit.take()
            assert (line["verb"], line["region"]) == ("system_region_unregister", "r1")
            client.get_log_settings()
            client.get_trace_settings()
            client.update_log_settings({"log_verbose_level": 0})
            line = logs.audit.take()
            assert line["verb"].startswith("log_") and line["parameters"] == {"log_verbose_level": 0}
            client.update_trace_settings("simple", {"trace_rate": "5"})
            line = logs.audit.take()
            assert line["verb"].startswith("trace_") and line["model"] == "simple" and "5" in str(line["parameters"]["trace_rate"])
            client.update_trace_settings("simple", {"trace_rate": None})
            logs.audit.take()
    finally:
        os.unlink("/dev/shm/nereid_audit")


def test_what_the_gate_refuses_is_audited(start, repositories, tmp_path):
    one = start(
        repositories / "small",
        "--http-restricted-api=model-repository:secret=open",
        "--grpc-restricted-protocol=model-repository:secret=open",
        f"--access-log={tmp_path}/access.log",
        f"--audit-log={tmp_path}/audit.log",
    )
    audit = Log(tmp_path / "audit.log")
    for client in (tritonclient.http.InferenceServerClient(one.http), tritonclient.grpc.InferenceServerClient(one.grpc)):
        with client, pytest.raises(InferenceServerException):
            client.unload_model("simple")
    http, grpc = audit.take(2)
    assert (http["status"], http["code"], http["model"]) == (403, "PERMISSION_DENIED", "simple")
    assert (grpc["grpc_status"], grpc["code"], grpc["verb"]) == (14, "UNAVAILABLE", "unload")


@pytest.mark.skipif(bool(OTHER) or not CURL, reason="keys are this server's own; curl is asked: apt-get install curl")
def test_both_logs_have_the_name_of_the_key_and_nothing_else_of_it(start, repositories, tmp_path):
    path = tmp_path / "keys.json"
    ann, ops = (make(path, name, "--scope=all") for name in ("ann", "ops"))
    names = {ann: "ann", ops: "ops"}
    flags = [f"--keys-file={path}", "--model-control-mode=explicit", "--load-model=simple", f"--access-log={tmp_path}/access.log", f"--audit-log={tmp_path}/audit.log"]
    one = start(repositories / "small", *flags)
    access, audit = Log(tmp_path / "access.log"), Log(tmp_path / "audit.log")
    of_model = lambda line: line.get("model") == "simple"
    audit.taken = len(audit.lines())
    # One connection each, over which keys change.
    for module, url, protocol in ((tritonclient.http, one.http, "http/1.1"), (tritonclient.grpc, one.grpc, "grpc")):
        with module.InferenceServerClient(url) as client:
            for key in (ann, ops, ops, ann):
                client.infer("simple", inputs(module), headers={"authorization": f"Bearer {key}"})
                line = access.until(of_model)
                assert (line["key"], line["protocol"]) == (names[key], protocol)
            for wrong in ({}, {"x-api-key": ann[:-1]}, {"x-api-key": f"{ann}a"}):
                with pytest.raises(InferenceServerException):
                    client.infer("simple", inputs(module), headers=wrong)
            # Calls of gRPC name their model in a message, which is not read then.
            refused = [access.until(lambda line: line.get("code") == "UNAUTHENTICATED") for _ in range(3)]
            assert all("key" not in line for line in refused), refused
            for key in (ops, ann):
                client.load_model("simple", headers={"x-api-key": key})
                line = audit.take()
                assert (line["verb"], line["key"], line["protocol"]) == ("load", names[key], protocol)
                assert access.until(lambda line: line.get("key") == names[key])["protocol"] == protocol
            with pytest.raises(InferenceServerException):
                client.load_model("simple", headers={"x-api-key": "nk_this-is-no-key-of-this-server-but-long"})
            line = audit.take()
            assert line["code"] == "UNAUTHENTICATED" and "key" not in line
            assert "key" not in access.until(lambda line: line.get("code") == "UNAUTHENTICATED")
    body = json.dumps({"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for n in ("INPUT0", "INPUT1")]})
    url = f"http://{one.http}/v2/models/simple/infer"
    for key in (ann, ops):
        # One connection per request: curl 7.88 fails at the second request of a connection that began with HTTP/2.
        command = [CURL, "-sS", "--http2-prior-knowledge", "-H", f"X-API-Key: {key}", "-d", body, url]
        assert b"OUTPUT0" in subprocess.run(command, capture_output=True, check=True, timeout=30).stdout
        line = access.until(lambda line: line["protocol"] == "h2")
        assert (line["key"], line["model"], line["status"]) == (names[key], "simple", 200)
    for text in (open(log.path).read() for log in (access, audit)):
        # The logs contain no part of a key, not even of a wrong one.
        assert ann[3:20] not in text and ops[3:20] not in text and "this-is-no-key" not in text


def test_rotation_by_renaming(start, repositories, tmp_path):
    path, moved = tmp_path / "access.log", tmp_path / "access.log.1"
    one = start(repositories / "small", f"--access-log={path}")
    one.get("/v2")
    Log(path).until(lambda line: line["verb"] == "server_metadata")
    os.rename(path, moved)
    end = time.monotonic() + 20
    while not os.path.exists(path):
        assert time.monotonic() < end, "never made again"
        one.get("/v2")
        time.sleep(0.05)
    before = len(Log(moved).lines())
    one.get("/v2/health/ready")
    Log(path).until(lambda line: line["verb"] == "server_ready")
    assert len(Log(moved).lines()) == before


def test_standard_output_and_a_share_of_the_requests(start, repositories):
    one = start(repositories / "small", "--access-log=-", "--access-log-rate=0.25")
    taken = lambda: [json.loads(line) for line in one.output().splitlines() if line.startswith('{"time"')]
    with tritonclient.http.InferenceServerClient(one.http) as client:
        for _ in range(100):
            client.get_server_metadata()
        for _ in range(5):
            with pytest.raises(InferenceServerException):
                client.get_model_metadata("none")
    end = time.monotonic() + 10
    while len([line for line in taken() if line["status"] != 200]) < 5:
        assert time.monotonic() < end, taken()
        time.sleep(0.01)
    share = [line for line in taken() if line["verb"] == "server_metadata"]
    assert len(share) in (24, 25, 26)


def test_a_line_says_why_its_batch_began_and_what_it_waited_behind(start, tmp_path):
    """One model whose batches wait for a delay, as in Triton, and one whose only instance is busy for a while."""
    models = dict(delayed="dynamic_batching { preferred_batch_size: [2] max_queue_delay_microseconds: 20000 }", busy="")
    for model, more in models.items():
        (tmp_path / "models" / model / "1").mkdir(parents=True)
        wait = 'parameters { key: "execute_delay_ms" value { string_value: "300" } }' if model == "busy" else ""
        ports = 'input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }'
        config = f'backend: "identity" max_batch_size: 8 {ports} {more} {wait}'
        (tmp_path / "models" / model / "config.pbtxt").write_text(config)
    one = start(tmp_path / "models", "--strict-batching-delay=true", f"--access-log={tmp_path}/access.log")
    log = Log(tmp_path / "access.log")

    def send(model, rows, count):
        tensor = tritonclient.http.InferInput("INPUT0", [rows, 1], "INT32")
        tensor.set_data_from_numpy(np.zeros((rows, 1), np.int32))
        with tritonclient.http.InferenceServerClient(one.http, concurrency=count) as client:
            for waits in [client.async_infer(model, [tensor]) for _ in range(count)]:
                waits.get_result()
        lines = [log.until(lambda line: line.get("model") == model) for _ in range(count)]
        return sorted((line["batch"], line["cause"], line.get("behind")) for line in lines)

    assert send("delayed", 1, 1) == [(1, "delay_elapsed", None)]
    assert send("delayed", 2, 1) == [(2, "preferred_size", None)]
    assert send("delayed", 8, 1) == [(8, "full", None)]
    behind = {"model": "busy", "version": "1", "for": "instances", "rows": 0}
    assert send("busy", 3, 2) == [(3, "idle_instance", None), (3, "instance_freed", behind)]


def test_a_log_that_cannot_be_opened_is_named_at_the_start(repositories, tmp_path):
    from server import Server

    one = Server(repositories / "small", f"--access-log={tmp_path}/none/access.log", log=tmp_path / "server.log", wait=False)
    assert one.wait() == 1
    assert f"failed to open the file of --access-log, '{tmp_path}/none/access.log': No such file or directory" in one.output()


def test_a_reader_that_does_not_read_costs_lines_and_no_time(start, repositories, tmp_path):
    """The pipe takes 64 KiB, the buffer 4 MiB; what comes then is counted, and requests go on as fast as before."""
    os.mkfifo(tmp_path / "fifo")
    one = start(repositories / "small", f"--access-log={tmp_path}/fifo")
    lost = 'nereid_access_log_lines_lost_total{reason="queue_full"}'
    path = b"/" + b"p" * 1024
    request = b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    import socket

    slowest, sent = 0.0, 0
    with socket.create_connection(("127.0.0.1", one.http_port)) as s:
        reader = s.makefile("rb")
        while one.metrics()[lost] == 0:
            assert sent < 5000
            for _ in range(200):
                begin = time.monotonic()
                s.sendall(request)
                assert b"404" in reader.readline()
                length = 0
                while (field := reader.readline()) != b"\r\n":
                    if field.lower().startswith(b"content-length"):
                        length = int(field.split(b":")[1])
                reader.read(length)
                slowest = max(slowest, time.monotonic() - begin)
                sent += 1
    assert slowest < 1, "a request waited for the log"
    metrics = one.metrics()
    assert metrics["nereid_access_log_waiting_bytes"] <= metrics["nereid_access_log_waiting_bytes_max"]
    # The reader comes back: lines are written again, and no half one among them.
    with open(tmp_path / "fifo", "rb") as fifo:
        end = time.monotonic() + 20
        text = b""
        while one.metrics()["nereid_access_log_waiting_bytes"] > 0:
            assert time.monotonic() < end
            text += os.read(fifo.fileno(), 1 << 16)
    lines = text[: text.rfind(b"\n") + 1].splitlines()
    assert lines and all(json.loads(line)["status"] in (200, 404) for line in lines)
    assert one.stop() == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_full_disk_costs_lines_which_are_counted_and_told_of_once(start, repositories):
    one = start(repositories / "small", "--access-log=/dev/full")
    end = time.monotonic() + 10
    while one.metrics()['nereid_access_log_lines_lost_total{reason="error"}'] < 50:
        assert time.monotonic() < end
        for _ in range(20):
            one.get("/v2")
    assert one.metrics()["nereid_access_log_lines_total"] == 0
    assert one.output().count("lines of --access-log are lost") == 1, one.tail()
