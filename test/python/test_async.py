"""The asynchronous faces of the clients: greenlets, callbacks, streams."""
import asyncio
import queue

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
import tritonclient.http as httpclient

from clients import SIXTEEN, connect


def pair(module, value):
    array = np.full((1, 16), value, np.int32)
    inputs = [module.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for one in inputs:
        one.set_data_from_numpy(array)
    return inputs


def test_http_async_infer_answers_each_request(server):
    """P-198"""
    with httpclient.InferenceServerClient(server.http, concurrency=8) as client:
        pending = [client.async_infer("simple", pair(httpclient, i), request_id=str(i)) for i in range(64)]
        for i, one in enumerate(pending):
            result = one.get_result()
            assert result.get_response()["id"] == str(i)
            assert (result.as_numpy("OUTPUT0") == 2 * i).all()


def test_grpc_async_infer_calls_back(server):
    """P-200"""
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(server.grpc) as client:
        for i in range(64):
            client.async_infer(
                "simple", pair(grpcclient, i), request_id=str(i), callback=lambda result, error: answers.put((result, error))
            )
        seen = set()
        for _ in range(64):
            result, error = answers.get(timeout=20)
            assert error is None
            i = int(result.get_response().id)
            assert (result.as_numpy("OUTPUT0") == 2 * i).all()
            seen.add(i)
    assert seen == set(range(64))


def test_aio_clients_run_many_requests_at_once(server):
    """P-199 P-201"""
    for kind in ("http.aio", "grpc.aio"):
        client = connect(kind, server)

        async def one(i):
            x = np.full((1, 16), i, np.int32)
            inputs = [client.input("INPUT0", x), client.input("INPUT1", x)]
            result = await client.raw.infer("simple", inputs)
            return (result.as_numpy("OUTPUT0") == 2 * i).all()

        async def all_of_them():
            return await asyncio.gather(*(one(i) for i in range(64)))

        assert all(client.loop.run_until_complete(all_of_them()))
        client.close()


def stream(server, requests, count, **options):
    """Sends (model, inputs, request options) on one stream; returns `count` (result, error) pairs in arrival order."""
    answers = queue.Queue()
    client = grpcclient.InferenceServerClient(server.grpc)
    client.start_stream(callback=lambda result, error: answers.put((result, error)), **options)
    try:
        for model, inputs, more in requests:
            client.async_stream_infer(model, inputs, **more)
        return [answers.get(timeout=20) for _ in range(count)]
    finally:
        client.stop_stream()
        client.close()


def test_a_stream_answers_in_request_order_and_marks_the_last_response(server):
    """P-147 P-149 P-202"""
    sent = [("simple", pair(grpcclient, i), {"request_id": str(i)}) for i in range(50)]
    for i, (result, error) in enumerate(stream(server, sent, 50)):
        assert error is None
        response = result.get_response()
        assert response.id == str(i)
        assert response.parameters["triton_final_response"].bool_param is True
        assert (result.as_numpy("OUTPUT0") == 2 * i).all()


def test_a_stream_takes_several_models_and_survives_errors(server):
    """P-151 P-152 P-156"""
    x = grpcclient.InferInput("INPUT0", [1], "FP32")
    x.set_data_from_numpy(np.array([4], np.float32))
    sent = [
        ("simple", pair(grpcclient, 1), {"request_id": "a"}),
        ("no_such_model", pair(grpcclient, 1), {"request_id": "b"}),
        ("echo", [x], {"request_id": "c"}),
        ("simple", pair(grpcclient, 2)[:1], {"request_id": "d"}),
        ("simple", pair(grpcclient, 3), {"request_id": "e"}),
    ]
    got = stream(server, sent, 5)
    errors = [error.message() for _, error in got if error is not None]
    assert errors == [
        "Request for unknown model: 'no_such_model' is not found",
        "[request id: d] expected 2 inputs but got 1 inputs for model 'simple'. Got input(s) ['INPUT0'], but missing "
        "required input(s) ['INPUT1']. Please provide all required input(s).",
    ]
    assert sorted(result.get_response().id for result, error in got if error is None) == ["a", "c", "e"]


def test_an_empty_final_response_can_be_asked_for(server):
    """P-142 P-150: a response of a model that is not decoupled is its own final one."""
    sent = [("simple", pair(grpcclient, 1), {"enable_empty_final_response": True})]
    ((result, error),) = stream(server, sent, 1)
    assert error is None
    assert result.get_response().parameters["triton_final_response"].bool_param is True


def test_half_closing_a_stream_finishes_what_was_sent(server):
    """P-153"""
    answers = []
    client = grpcclient.InferenceServerClient(server.grpc)
    client.start_stream(callback=lambda result, error: answers.append((result, error)))
    x = grpcclient.InferInput("INPUT0", [1], "INT32")
    x.set_data_from_numpy(np.array([5], np.int32))
    client.async_stream_infer("slow", [x])
    client.stop_stream()
    client.close()
    assert [error for _, error in answers] == [None]
    assert answers[0][0].as_numpy("OUTPUT0").tolist() == [5]


def test_an_aio_stream_answers(server):
    """P-202 with grpc.aio"""

    async def run():
        async def requests():
            for i in range(20):
                yield {"model_name": "simple", "inputs": pair(grpcclient, i), "request_id": str(i)}

        async with grpcaio.InferenceServerClient(server.grpc) as client:
            ids = []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                ids.append(result.get_response().id)
            return ids

    assert asyncio.run(run()) == [str(i) for i in range(20)]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_client_deadline_is_reported_as_such(server, kind):
    client = connect(kind, server)
    x = np.array([1], np.int32)
    if kind == "grpc":
        from clients import failure

        message, status = failure(lambda: client.infer("slow", {"INPUT0": x}, client_timeout=0.05))
        assert status == "StatusCode.DEADLINE_EXCEEDED"
    else:
        slow = httpclient.InferenceServerClient(server.http, network_timeout=0.05)
        with pytest.raises(Exception, match="timed out|timeout"):
            slow.infer("slow", [client.input("INPUT0", x)])
        slow.close()
    assert client.infer("simple", {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN}).as_numpy("OUTPUT0").sum() == 240
    client.close()
