"""Models with any number of responses, as NVIDIA's clients and its decoupled examples use them."""
import asyncio
import json
import queue
import time
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
from tritonclient.utils import InferenceServerException

from clients import KINDS, connect


def repeat_inputs(values, delays, wait=0):
    inputs = []
    for name, datatype, array in (
        ("IN", "INT32", np.array(values, np.int32)),
        ("DELAY", "UINT32", np.array(delays, np.uint32)),
        ("WAIT", "UINT32", np.array([wait], np.uint32)),
    ):
        one = grpcclient.InferInput(name, list(array.shape), datatype)
        one.set_data_from_numpy(array)
        inputs.append(one)
    return inputs


def count_input(n):
    one = grpcclient.InferInput("IN", [1], "INT32")
    one.set_data_from_numpy(np.array([n], np.int32))
    return [one]


def is_final(result):
    return result.get_response().parameters["triton_final_response"].bool_param


def stream(server, requests, until):
    """Sends (model, inputs, options) on one stream; returns what came when `until` says that it is enough."""
    answers, seen = queue.Queue(), []
    client = grpcclient.InferenceServerClient(server.grpc)
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    try:
        for model, inputs, options in requests:
            client.async_stream_infer(model, inputs, **options)
        while not until(seen):
            seen.append(answers.get(timeout=20))
        return seen
    finally:
        client.stop_stream()
        client.close()


def finals(n):
    return lambda seen: sum(error is None and is_final(result) for result, error in seen) >= n


def test_repeat_over_a_stream_as_in_nvidias_example(server):
    """P-148 P-150: simple_grpc_custom_repeat.py"""
    seen = stream(server, [("repeat", repeat_inputs(range(10), [5] * 10), {"enable_empty_final_response": True})], finals(1))
    assert [error for _, error in seen] == [None] * 11
    assert [int(r.as_numpy("OUT")[0]) for r, _ in seen[:-1]] == list(range(10))
    assert [int(r.as_numpy("IDX")[0]) for r, _ in seen[:-1]] == list(range(10))
    last = seen[-1][0].get_response()
    assert [len(last.outputs), last.model_name, last.model_version] == [0, "repeat", ""]


def test_two_requests_are_interleaved_and_each_keeps_its_order(server):
    """P-148"""
    options = {"enable_empty_final_response": True}
    seen = stream(
        server,
        [
            ("repeat", repeat_inputs([0, 1, 2], [0, 200, 200]), dict(options, request_id="a")),
            ("repeat", repeat_inputs([0, 1, 2], [100, 200, 200]), dict(options, request_id="b")),
        ],
        finals(2),
    )
    order = [r.get_response().id for r, _ in seen if len(r.get_response().outputs)]
    assert order == ["a", "b"] * 3
    for name in "ab":
        values = [int(r.as_numpy("OUT")[0]) for r, _ in seen if r.get_response().id == name and len(r.get_response().outputs)]
        assert values == [0, 1, 2]


def test_a_failure_in_the_middle_is_a_message_and_the_end_still_comes(server):
    """P-148 P-151"""
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(server.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        client.async_stream_infer("square_fail", count_input(3), enable_empty_final_response=True)
        seen = [answers.get(timeout=20) for _ in range(4)]
        client.stop_stream()
    assert [error and error.message() for _, error in seen] == [None, None, "simulated failure", None]
    assert is_final(seen[3][0]) and not is_final(seen[1][0])


def test_an_aio_stream_yields_responses_as_they_come(server):
    """P-148"""

    async def run():
        async with grpcaio.InferenceServerClient(server.grpc) as client:

            async def requests():
                yield {"model_name": "repeat", "inputs": repeat_inputs([5, 6, 7], [0, 300, 300]), "enable_empty_final_response": True}

            values, times = [], []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                times.append(time.monotonic())
                if is_final(result):
                    break
                values.append(int(result.as_numpy("OUT")[0]))
            return values, times

    values, times = asyncio.run(run())
    assert values == [5, 6, 7]
    assert times[1] - times[0] > 0.2 and times[2] - times[1] > 0.2


# `close` of tritonclient waits for the end of the stream, so it gets a shorter one.
@pytest.mark.parametrize(("cancel", "count"), [("stop_stream", 1000), ("close", 100)], ids=["stop_stream", "close"])
def test_a_stream_that_is_given_up_stops_its_model(server, cancel, count):
    """P-148 P-153"""
    seen = queue.Queue()
    client = grpcclient.InferenceServerClient(server.grpc)
    client.start_stream(callback=lambda result, error: seen.put(error))
    client.async_stream_infer("repeat", repeat_inputs(range(count), [20] * count))
    assert seen.get(timeout=20) is None
    client.stop_stream(cancel_requests=True) if cancel == "stop_stream" else client.close()
    # The only instance is free for the next one at once, not in twenty seconds.
    from_ = time.monotonic()
    assert len(stream(server, [("repeat", repeat_inputs([1], [0]), {"enable_empty_final_response": True})], finals(1))) == 2
    assert time.monotonic() - from_ < 5


@pytest.mark.parametrize("kind", KINDS)
def test_one_answer_is_not_to_be_had_of_a_decoupled_model(server, kind):
    """P-145"""
    client = connect(kind, server)
    arrays = {"IN": np.array([1], np.int32)}
    with pytest.raises(InferenceServerException, match="doesn't support models with decoupled transaction policy"):
        client.infer("square", arrays)
    client.close()


def generate(server, path, body):
    request = urllib.request.Request(f"http://{server.http}/v2/models/{path}", json.dumps(body).encode())
    return urllib.request.urlopen(request, timeout=20)


def test_generate_wants_exactly_one_response(server):
    """P-112"""
    with generate(server, "square/generate", {"IN": 1}) as answer:
        assert json.load(answer) == {"OUT": 1, "model_name": "square", "model_version": "1"}
    with generate(server, "square/generate", {"IN": 2}) as answer:
        assert answer.status == 200
        assert json.load(answer)["error"].startswith("generate expects model to produce exactly 1 response, use generate stream")


def test_generate_stream_sends_each_event_when_it_is_there(server):
    """P-107 P-113"""
    with generate(server, "repeat/generate_stream", {"IN": [7, 8, 9], "DELAY": [0, 300, 300], "WAIT": 0}) as answer:
        times, values = [], []
        for line in answer:
            if line.startswith(b"data: "):
                times.append(time.monotonic())
                values.append(json.loads(line[6:])["OUT"])
    assert values == [7, 8, 9]
    assert times[1] - times[0] > 0.2 and times[2] - times[1] > 0.2


def test_a_burst_loses_nothing(server):
    """P-107: the reference loses events when they come at once over several connections."""
    n = 3000
    answers = [generate(server, "square/generate_stream", {"IN": n}) for _ in range(8)]
    for answer in answers:
        with answer:
            assert answer.read().count(b"data: {\"OUT\":3000") == n
