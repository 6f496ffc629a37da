"""The folder `examples/ensemble-ts`, started as it is: an ensemble of TypeScript, ONNX and Python, whose last step is a generator.

S-31, B-JS-02, B-JS-03: alarms over gRPC streams and server-sent events, and what the model and the server see of a client that leaves.
"""
import concurrent.futures
import json
import os
import queue
import random
import socket
import subprocess
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http

from interpreter import python_server
from server import NODE, ROOT, waits_for

WINDOW = 9
LIMIT = 30


TORCH = os.environ.get("NEREID_TORCHSCRIPT")
"""An interpreter with torch, for a network in TorchScript instead of ONNX: `npm run test:heavy -- torchscript`."""


def use_torchscript(repository):
    """Replaces the network. The number of an output is in its name there."""
    network, ensemble = repository / "smooth", repository / "alarms/config.pbtxt"
    config = (network / "config.pbtxt").read_text()
    (network / "config.pbtxt").write_text(config.replace('backend: "onnxruntime"', 'platform: "pytorch_libtorch"').replace('"residual"', '"residual__0"'))
    ensemble.write_text(ensemble.read_text().replace('output_map { key: "residual" ', 'output_map { key: "residual__0" '))
    (network / "1/model.onnx").unlink()
    subprocess.run([TORCH, os.path.join(ROOT, "test/heavy/torchscript/smooth.py"), str(network / "1/model.pt")], check=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    out = tmp_path_factory.mktemp("examples")
    subprocess.run([NODE, os.path.join(ROOT, "scripts/models/series.mjs"), str(out)], check=True)
    flags = []
    if TORCH:
        use_torchscript(out / "ensemble-ts")
        flags = [f"--backend-config=python,python-executable={TORCH}"]
    one = python_server(out / "ensemble-ts", *flags, log=tmp_path_factory.mktemp("log") / "server.log")
    yield one
    assert one.stop() == 0, one.tail()


def series(seed, alarms):
    """Samples of a noisy sensor, and where they leave its course."""
    chance = np.random.default_rng(seed)
    samples = chance.normal(20, 1, 400 + 40 * alarms).astype(np.float32)
    places = 100 + 40 * np.arange(alarms) + chance.integers(0, 20, alarms)
    samples[places] += 200 * chance.choice([-1, 1], alarms).astype(np.float32)
    return samples, places.tolist()


def expected(samples):
    """Alarms as numpy finds them."""
    clean = samples - samples.mean()
    window = np.ones(WINDOW)
    distance = np.abs(clean - np.convolve(clean, window, "same") / np.convolve(np.ones_like(clean), window, "same"))
    scores = distance / (1.4826 * np.median(distance))
    return [(int(at), float(scores[at])) for at in np.flatnonzero(scores >= LIMIT)]


def check(samples, places, alarms):
    """Each alarm came once, in order, with its score."""
    found = [json.loads(alarm) for alarm in alarms]
    assert [one["at"] for one in found] == places
    assert [one["score"] for one in found] == pytest.approx([score for _, score in expected(samples)], abs=1)


def given(samples):
    return [grpc.InferInput("samples", [len(samples)], "FP32").set_data_from_numpy(samples)]


class Stream:
    """A gRPC stream of one client."""

    def __init__(self, server):
        self.found = queue.Queue()
        self.client = grpc.InferenceServerClient(server.grpc)
        self.client.start_stream(callback=lambda result, error: self.found.put((result, error)))

    def ask(self, samples, **options):
        self.client.async_stream_infer("alarms", given(samples), enable_empty_final_response=True, **options)

    def next(self):
        """The next response as (id, alarm, is it the last)."""
        result, error = self.found.get(timeout=60)
        assert error is None, error
        response = result.get_response()
        alarm = result.as_numpy("alarm")[0].decode() if response.outputs else None
        return response.id, alarm, response.parameters["triton_final_response"].bool_param

    def close(self, **options):
        self.client.stop_stream(**options)
        self.client.close()


def over_grpc(server, samples, **options):
    stream = Stream(server)
    stream.ask(samples, **options)
    alarms = []
    while True:
        _, alarm, is_last = stream.next()
        alarms += [alarm] if alarm is not None else []
        if is_last:
            stream.close()
            return alarms


def over_http(server, samples, **parameters):
    body = json.dumps({"samples": samples.tolist(), **parameters}).encode()
    request = urllib.request.Request(f"http://{server.http}/v2/models/alarms/generate_stream", data=body)
    with urllib.request.urlopen(request, timeout=60) as answer:
        events = [json.loads(line[len("data: "):]) for line in answer.read().decode().split("\n\n") if line]
    return [event["alarm"] for event in events if "alarm" in event]


WAYS = [over_grpc, over_http]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("alarms", [0, 1, 7])
def test_each_alarm_is_a_response(server, way, alarms):
    samples, places = series(alarms, alarms)
    check(samples, places, way(server, samples))


def test_a_stream_answers_many_requests_and_keeps_the_order_of_each(server):
    stream = Stream(server)
    asked = {str(i): series(i, i % 4) for i in range(12)}
    for name, (samples, _) in asked.items():
        stream.ask(samples, request_id=name)
    found, open_ = {name: [] for name in asked}, set(asked)
    while open_:
        name, alarm, is_last = stream.next()
        found[name] += [alarm] if alarm is not None else []
        open_ -= {name} if is_last else set()
    stream.close()
    for name, (samples, places) in asked.items():
        check(samples, places, found[name])


def test_two_hundred_requests_at_sixteen_at_once_over_both_protocols(server):
    def one(seed):
        chance = random.Random(seed)
        samples, places = series(seed, chance.randrange(6))
        way, pace = chance.choice(WAYS), chance.choice([0, 0, 5])
        parameters = {"pace_ms": pace}
        check(samples, places, way(server, samples, **({"parameters": parameters} if way is over_grpc else parameters)))

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(200)))


def test_the_error_of_a_step_ends_the_request(server):
    samples, _ = series(1, 1)
    samples[7] = np.nan
    stream = Stream(server)
    stream.ask(samples)
    _, error = stream.found.get(timeout=60)
    assert error.message() == "in ensemble 'alarms', samples[7] is NaN, expected a finite number"
    stream.close()


def counts(server):
    """Cancelled requests: as the server counts them for the ensemble and for its last step, and as that model does."""
    metrics = server.metrics()
    cancelled = [metrics[f'nv_inference_request_failure{{model="{model}",reason="CANCELED",version="1"}}'] for model in ("alarms", "report")]
    return [*cancelled, metrics["alarms_abandoned_total"]]


def leave_grpc(server, samples):
    stream = Stream(server)
    stream.ask(samples, request_id="leaves", parameters={"pace_ms": 50})
    assert stream.next()[1] is not None
    stream.close(cancel_requests=True)


def leave_http(server, samples):
    body = json.dumps({"id": "leaves", "samples": samples.tolist(), "pace_ms": 50}).encode()
    with socket.create_connection(("127.0.0.1", server.http_port)) as connection:
        head = f"POST /v2/models/alarms/generate_stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        read = b""
        while b'"alarm"' not in read:
            read += connection.recv(4096)


@pytest.mark.parametrize("leave", [leave_grpc, leave_http])
def test_the_generator_sees_a_client_that_leaves(server, leave):
    samples, places = series(3, 200)
    before = counts(server)
    sent = server.metrics().get("alarms_sent_total", 0)
    leave(server, samples)
    waits_for(lambda: counts(server) == [n + 1 for n in before], "the cancel is counted once")
    server.logged("the client of request 'leaves' left")
    # 200 alarms would take 10 s.
    assert server.metrics()["alarms_sent_total"] - sent < len(places)
    check(*series(4, 2), over_grpc(server, series(4, 2)[0]))


def test_clients_that_leave_do_not_disturb_those_that_stay(server):
    before = counts(server)
    leaving = [True] * 12 + [False] * 36

    def one(seed):
        if leaving[seed]:
            random.Random(seed).choice([leave_grpc, leave_http])(server, series(seed, 40)[0])
        else:
            samples, places = series(seed, 3)
            check(samples, places, WAYS[seed % 2](server, samples))

    order = list(range(len(leaving)))
    random.Random(5).shuffle(order)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(one, order))
    waits_for(lambda: counts(server) == [n + 12 for n in before], "twelve clients left")


def test_one_response_is_refused_as_for_any_decoupled_model(server):
    samples, _ = series(1, 1)
    with http.InferenceServerClient(server.http) as client, pytest.raises(Exception, match="decoupled"):
        one = http.InferInput("samples", [len(samples)], "FP32").set_data_from_numpy(samples)
        client.infer("alarms", [one])
