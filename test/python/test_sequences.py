"""Sequences, and ensembles of them and of decoupled models, as NVIDIA's sequence and decoupled examples use them."""
import asyncio
import queue

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
from tritonclient.utils import InferenceServerException

from clients import KINDS, connect
from test_decoupled import finals, is_final, repeat_inputs, stream

# The values of simple_grpc_sequence_stream_infer_client.py.
VALUES = [11, 7, 5, 3, 2, 0, 1]


@pytest.fixture(params=KINDS)
def sequences(request, steps):
    one = connect(request.param, steps)
    yield one
    one.close()


def flags(i, values=VALUES):
    return {"sequence_start": i == 0, "sequence_end": i == len(values) - 1}


def one_input(value):
    one = grpcclient.InferInput("INPUT", [1, 1], "INT32")
    one.set_data_from_numpy(np.array([[value]], np.int32))
    return [one]


def given(value):
    return {"INPUT": np.array([[value]], np.int32)}


def output(result):
    return int(result.as_numpy("OUTPUT")[0][0])


def sums(values, at_the_end=0):
    running = [int(v) for v in np.cumsum(values)]
    return running[:-1] + [running[-1] + at_the_end]


def test_two_sequences_keep_their_sums_apart(sequences):
    """P-197..P-201: simple_http_sequence_sync_infer_client.py, simple_grpc_sequence_sync_infer_client.py"""
    seen = {1000: [], 1001: []}
    for i, value in enumerate(VALUES):
        for sequence, sign in ((1000, 1), (1001, -1)):
            result = sequences.infer("simple_sequence", given(sign * value), sequence_id=sequence, **flags(i))
            seen[sequence].append(output(result))
    assert seen == {1000: sums(VALUES), 1001: sums([-v for v in VALUES])}


def test_the_id_is_a_control_of_the_model(sequences):
    """The option --dyna of the examples: the id is added at the end."""
    got = [output(sequences.infer("simple_dyna_sequence", given(v), sequence_id=1007, **flags(i))) for i, v in enumerate(VALUES)]
    assert got == sums(VALUES, 1007)


def test_ids_may_be_strings(sequences):
    seen = {"2001": [], "a-2002": []}
    for i, value in enumerate(VALUES[:-1]):
        for sequence in seen:
            result = sequences.infer("simple_string_dyna_sequence", given(value), sequence_id=sequence, sequence_start=i == 0)
            seen[sequence].append(output(result))
    assert seen == {sequence: sums(VALUES[:-1]) for sequence in seen}


def test_a_sequence_begins_with_its_start(sequences):
    with pytest.raises(InferenceServerException) as error:
        sequences.infer("simple_sequence", given(1), sequence_id=9)
    text = "inference request for sequence 9 to model 'simple_sequence' must specify the START flag on the first request of the sequence"
    assert text in error.value.message()


def test_an_ensemble_has_the_sequence_of_its_request(sequences):
    got = [output(sequences.infer("ensemble_sequence", given(v), sequence_id=500, **flags(i))) for i, v in enumerate(VALUES)]
    assert got == sums(np.cumsum(VALUES), 500)


@pytest.mark.parametrize("model, at_the_end", [("simple_sequence", False), ("simple_dyna_sequence", True)])
def test_sequences_over_one_stream(steps, model, at_the_end):
    """P-202 P-148: simple_grpc_sequence_stream_infer_client.py"""
    ids = (1000, 1001)
    requests = [
        (model, one_input(value if sequence == ids[0] else -value), {"sequence_id": sequence, "request_id": f"{sequence}_{i}", **flags(i)})
        for i, value in enumerate(VALUES)
        for sequence in ids
    ]
    seen = stream(steps, requests, lambda seen: len(seen) == len(requests))
    assert [error for _, error in seen] == [None] * len(requests)
    for sequence, values in zip(ids, (VALUES, [-v for v in VALUES])):
        mine = [result for result, _ in seen if result.get_response().id.startswith(f"{sequence}_")]
        assert [result.get_response().id for result in mine] == [f"{sequence}_{i}" for i in range(len(values))]
        assert [output(result) for result in mine] == sums(values, sequence if at_the_end else 0)


def test_sequences_over_an_aio_stream(steps):
    """P-201 P-148: simple_grpc_aio_sequence_stream_infer_client.py"""
    async def run():
        async with grpcaio.InferenceServerClient(steps.grpc) as client:
            async def requests():
                for i, value in enumerate(VALUES):
                    for sequence in (3000, 3001):
                        yield {
                            "model_name": "simple_sequence", "inputs": one_input(value), "request_id": f"{sequence}_{i}",
                            "sequence_id": sequence, **flags(i),
                        }

            seen = {3000: [], 3001: []}
            async for result, error in client.stream_infer(requests()):
                assert error is None
                seen[int(result.get_response().id.split("_")[0])].append(output(result))
            return seen

    assert asyncio.run(run()) == {3000: sums(VALUES), 3001: sums(VALUES)}


def test_requests_of_one_sequence_that_are_in_flight_together_wait_for_each_other(steps):
    """P-200"""
    answers = queue.Queue()
    with grpcclient.InferenceServerClient(steps.grpc) as client:
        def ask(i, **options):
            client.async_infer(
                "simple_sequence", one_input(1), request_id=str(i), sequence_id=77, callback=lambda result, error: answers.put((result, error)), **options
            )

        ask(0, sequence_start=True)
        seen = [answers.get(timeout=20)]
        for i in range(1, 200):
            ask(i)
        seen += [answers.get(timeout=20) for _ in range(1, 200)]
    assert [error for _, error in seen] == [None] * 200
    # Calls may overtake each other on their way to the server; each adds to the sum of the one before it, whichever that is.
    assert sorted(output(result) for result, _ in seen) == list(range(1, 201))


def test_an_ensemble_with_a_decoupled_step_streams(steps):
    """P-148 P-150"""
    options = {"enable_empty_final_response": True}
    seen = stream(steps, [("ensemble_repeat", repeat_inputs(range(20), [2] * 20), options)], finals(1))
    assert [error for _, error in seen] == [None] * len(seen)
    answers = [r for r, _ in seen if len(r.get_response().outputs) > 0]
    assert [int(r.as_numpy("OUT")[0]) for r in answers] == list(range(20))
    assert [int(r.as_numpy("IDX")[0]) for r in answers] == list(range(20))
    assert [is_final(r) for r, _ in seen] == [False] * (len(seen) - 1) + [True]


def test_an_ensemble_with_a_decoupled_step_over_an_aio_stream(steps):
    """P-201 P-150"""
    async def run():
        async with grpcaio.InferenceServerClient(steps.grpc) as client:
            async def requests():
                yield {"model_name": "ensemble_repeat", "inputs": repeat_inputs([5, 6, 7], [1, 1, 1])}

            # This client cannot ask for an empty final response: the stream ends behind the last.
            return [(error, int(result.as_numpy("OUT")[0])) async for result, error in client.stream_infer(requests())]

    assert asyncio.run(run()) == [(None, 5), (None, 6), (None, 7)]
