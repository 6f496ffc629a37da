"""Frames of shm/vectors, which every language reads: B-PYR-01."""
import json
import mmap
import os

import pytest
from nereid_runner import arena, link, wire
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
    length, kind, flags, count = P.HEADER.unpack_from(frame)
    assert len(frame) == 8 + length
    return frame[8:], count, GOOD[name]["value"]


def test_b_pyr_01_a_batch_is_read(codec, monkeypatch):
    monkeypatch.setattr(link.current, "outputs", ["A"], raising=False)
    body, count, value = body_of("execute")
    batch, freed, requests = codec.execute(body, 0, count)
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
    assert codec.failed(8, [], "ValueError: \u00e9")[8:] == bytes(failed)
    respond, _, _ = body_of("respond")
    response = pb.InferenceResponse(error=pb.TritonError("no", pb.TritonError.INVALID_ARG))
    assert codec.respond(3, 9, response, True)[8:] == bytes(respond) or codec.respond(3, 9, response, False)[8:] == bytes(respond)
