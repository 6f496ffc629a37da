"""Frames of shm/vectors, which every language reads: B-PYR-01."""
import json
import mmap
import os
import struct
import weakref

import numpy as np
import pytest
from nereid_runner import arena, device, link, server, wire
from nereid_runner import tensor as tensors
from runner_host import ROOT, P

with open(os.path.join(ROOT, "shm/vectors/frames.json")) as f:
    GOOD = {one["name"]: one for one in json.load(f)["good"]}


@pytest.fixture
def codec():
    requests, responses = arena.Requests(lambda: None), arena.Responses(lambda size: None)
    requests.add(0, mmap.mmap(-1, 1 << 20))
    responses.add(mmap.mmap(-1, 1 << 20))
    return wire.Codec("m", requests, responses)


def body_of(name):
    frame = bytearray.fromhex(GOOD[name]["hex"])
    length, _, _, count, _, _ = P.HEADER.unpack_from(frame)
    assert len(frame) == P.HEADER.size + length
    return frame[P.HEADER.size :], count, GOOD[name]["value"]


def test_b_pyr_01_a_batch_is_read(codec, monkeypatch):
    monkeypatch.setattr(link.current, "outputs", ["A"], raising=False)
    body, count, value = body_of("execute")
    batch, freed, flags, requests = codec.execute(body, 0, count)
    assert (batch, list(freed), len(requests)) == (value["batch"], value["releases"], 2)
    first, second = requests
    want = value["requests"][0]
    assert first._head[:2] == (want["slot"], want["generation"])
    assert (first.request_id(), first.correlation_id(), first.timeout(), first.flags()) == (want["id"], want["correlation"], want["timeout_us"], want["flags"])
    assert json.loads(first.parameters()) == want["parameters"] and first.requested_output_names() == set(want["outputs"])
    assert [(t.name(), t.shape()) for t in first.inputs()] == [(t["name"], t["dims"]) for t in want["inputs"]]
    assert first.inputs()[0].as_numpy().tobytes().hex() == want["inputs"][0]["inline"]
    assert codec._requests.place_of(first.inputs()[1].as_numpy()) == (want["inputs"][1]["segment"], want["inputs"][1]["offset"])
    assert second.correlation_id() == "s1" and second.inputs() == []
    assert second.requested_output_names() == {"A"}


def test_b_pyr_01_an_answer_of_a_call_is_read(codec):
    body, _, value = body_of("call_response")
    call, response, last = codec.call_response(body, 0)
    assert (call, last, response.error().message(), response.error().code().name) == (value["call"], value["final"], value["error"], value["code"])


def test_b_pyr_01_what_is_sent_is_what_the_vectors_say(codec):
    import triton_python_backend_utils as pb

    failed, _, _ = body_of("result_failed")
    assert codec.failed(8, [], "ValueError: \u00e9")[P.HEADER.size :] == bytes(failed)
    respond, _, _ = body_of("respond")
    response = pb.InferenceResponse(error=pb.TritonError("no", pb.TritonError.INVALID_ARG))
    assert codec.respond(3, 9, response, True)[P.HEADER.size :] == bytes(respond) or codec.respond(3, 9, response, False)[P.HEADER.size :] == bytes(respond)


@pytest.fixture
def lending(codec):
    """A codec with devices, and the frames that go over the side socket."""
    sent = []

    def send_later(made):
        sent.append(made() if callable(made) else made)

    codec._devices = device.Devices(send_later, server._releases, lambda: wire.head(0, P.FRAME_NO_DEVICES))
    return codec, sent


def test_b_pyr_14_memory_of_a_device_is_lent_and_given_back_once(lending, monkeypatch):
    codec, sent = lending
    body, count, value = body_of("execute_device")
    batch, freed, _, (request,) = codec.execute(body, 0, count)
    want = value["requests"][0]["inputs"][0]
    tensor = request.inputs()[0]
    memory = tensor._array
    assert (batch, list(freed)) == (value["batch"], value["releases"])
    assert (tensor.shape(), memory.device, memory.offset, memory.size, memory.lease) == (want["dims"], want["device"], want["offset"], want["bytes"], want["lease"])
    assert memory.handle.hex() == want["handle"] and not tensor.is_cpu() and tensor.__dlpack_device__() == (2, want["device"])
    # Sent again, it is named, and its handle means nothing.
    parts = [None]
    codec.answer(parts, response_of(tensor), None, P.ANSWER_FLAG_FINAL, "result")
    frame = b"".join(parts[1:])
    head = P.TENSOR_HEAD.unpack_from(frame, 16)
    assert head[3:] == (P.PLACE_DEVICE_REQUEST, 0, P.DEVICE_SEGMENT, want["lease"], want["bytes"])
    assert P.DEVICE_TENSOR.unpack_from(frame, 16 + 24 + 1 + 16) == (want["device"], 0, 0)
    assert not sent
    del request, tensor, memory, parts
    assert sent == [P.HEADER.pack(8, P.FRAME_RELEASE, 0, 1, 0, 0) + struct.pack("<Q", P.DEVICE_SEGMENT << 40 | want["lease"])]


def test_b_pyr_14_what_is_lent_to_the_server_lies_as_the_vector_says(lending, monkeypatch):
    codec, _ = lending
    body, _, value = body_of("result_device")
    want = value["answers"][0]["outputs"][0]

    class Driver:
        def exported(self, number, address):
            assert (number, address) == (1, 1 << 40)
            return bytes.fromhex(want["handle"]), want["offset"]

    monkeypatch.setattr(device, "driver", Driver)
    monkeypatch.setattr(device, "LENT_BYTES_MIN", 32)
    codec._devices._last = want["lease"] - 1
    memory = device.Memory(1, 1 << 40, np.dtype("f4"), (2, 4), 32)
    tensor = tensors.of_memory("G", 11, memory)
    parts = [None]
    length = codec.answer(parts, response_of(tensor), None, P.ANSWER_FLAG_FINAL, "result")
    made = b"".join(parts[1:])
    assert len(made) == length and bytes(body).index(made[16:]) > 0
    watch = weakref.ref(memory)
    del memory, tensor, parts
    assert watch() is not None, "the server reads it"
    left = codec._devices.taken_back([64, P.DEVICE_SEGMENT << 40 | want["lease"], P.DEVICE_SEGMENT << 40 | 99])
    assert left == [64] and watch() is None


def response_of(tensor):
    import triton_python_backend_utils as pb

    return pb.InferenceResponse([tensor])
