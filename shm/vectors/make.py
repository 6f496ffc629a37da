#!/usr/bin/env python3
"""Writes frames.json: frames of the runner protocol as bytes and as what they say, for the tests of every language that reads or writes them.

`good` frames say what `value` says. `lies` are frames that no host may accept from a runner, each for its own reason.
Written with `struct` alone, from the README: what both sides are held to must not come from one of them.
"""
import json
import sys
from pathlib import Path
from struct import pack

HERE = Path(__file__).parent
# The module alone: the package around it needs numpy.
sys.path.insert(0, str(HERE.parent / "python" / "nereid_shm"))
import protocol as p  # noqa: E402


#: Frames about the process; all others are about an instance: in the examples, the first of the first model.
ABOUT_PROCESS = (p.FRAME_SEGMENT, p.FRAME_NEED_SEGMENT, p.FRAME_RELEASE, p.FRAME_CLOSE_HANDLE, p.FRAME_NO_DEVICES, p.FRAME_PING, p.FRAME_PONG)


def frame(kind, body=b"", flags=0, count=0, model=None):
    model = int(kind not in ABOUT_PROCESS) if model is None else model
    return p.HEADER.pack(len(body), kind, flags, count, model, 0) + body


def tensor(name, datatype, dims, inline=None, place=p.PLACE_INLINE, segment=0, offset=0, length=0):
    length = len(inline) if inline is not None else length
    head = p.TENSOR_HEAD.pack(len(name), datatype, len(dims), place, 0, segment, offset, length)
    return head + name.encode() + pack(f"<{len(dims)}q", *dims) + (inline or b"")


def device(name, datatype, dims, length, place=p.PLACE_DEVICE_RESPONSE, lease=7, segment=p.DEVICE_SEGMENT, offset=256, handle=bytes(range(64))):
    head = p.TENSOR_HEAD.pack(len(name), datatype, len(dims), place, 0, segment, lease, length)
    return head + name.encode() + pack(f"<{len(dims)}q", *dims) + p.DEVICE_TENSOR.pack(1, 0, offset) + handle


def answer(kind, outputs=(), flags=0, code=0, parameters="", error=""):
    head = p.ANSWER_HEAD.pack(kind, flags, len(outputs), code, len(parameters.encode()), len(error.encode()))
    return head + parameters.encode() + error.encode() + b"".join(outputs)


def result(batch, answers=(), releases=(), error="", flags=0, count=None):
    head = p.RESULT_HEAD.pack(batch, len(releases), len(error.encode()))
    body = head + pack(f"<{len(releases)}Q", *releases) + error.encode() + b"".join(answers)
    return frame(p.FRAME_RESULT, body, flags, len(answers) if count is None else count)


def request(slot, generation, inputs=(), outputs=None, correlation=0, timeout=0, flags=0, id="", text="", parameters="", trace=""):
    head = p.REQUEST_HEAD.pack(slot, generation, correlation, timeout, flags, len(inputs), p.ALL_OUTPUTS if outputs is None else len(outputs),
                               len(id.encode()), len(text.encode()), len(parameters.encode()), len(trace.encode()))
    names = b"".join(pack("<H", len(n.encode())) + n.encode() for n in outputs or ())
    return head + (id + text + parameters + trace).encode() + names + b"".join(inputs)


X = tensor("X", p.DATA_TYPE_FP32, [1, 2], pack("<2f", 1.5, -2.0))
STRINGS = tensor("S", p.DATA_TYPE_BYTES, [2], pack("<I", 2) + b"ab" + pack("<I", 0))
SHARED = tensor("Y", p.DATA_TYPE_INT64, [1024], place=p.PLACE_RESPONSE, segment=1, offset=4096, length=8192)

GOOD = {
    "execute": (frame(p.FRAME_EXECUTE, p.EXECUTE_HEAD.pack(7, 1, 0) + pack("<Q", 1 << 40 | 64) + request(
        3, 9, [X, tensor("B", p.DATA_TYPE_UINT8, [10000], place=p.PLACE_REQUEST, offset=128, length=10000)], ["OUT", "É"], correlation=42, timeout=1000,
        flags=p.REQUEST_FLAG_SEQUENCE_START, id="a1", parameters='{"k":"v","n":1,"d":2.0,"t":true}') + request(4, 1, [], None, text="s1"), count=2), {
        "batch": 7, "releases": [1 << 40 | 64], "requests": [
            {"slot": 3, "generation": 9, "correlation": 42, "timeout_us": 1000, "flags": 1, "id": "a1", "outputs": ["OUT", "É"],
             "parameters": {"k": "v", "n": 1, "d": 2.0, "t": True}, "inputs": [
                 {"name": "X", "datatype": "FP32", "dims": [1, 2], "inline": "0000c03f000000c0"},
                 {"name": "B", "datatype": "UINT8", "dims": [10000], "place": "REQUEST", "segment": 0, "offset": 128, "bytes": 10000}]},
            {"slot": 4, "generation": 1, "correlation": "s1", "outputs": None, "inputs": []}]}),
    "call_response": (frame(p.FRAME_CALL_RESPONSE, p.CALL_ID.pack(5) + answer(p.ANSWER_ERROR, flags=p.ANSWER_FLAG_FINAL, code=p.CODE_NOT_FOUND, error="nö")), {
        "call": 5, "kind": "ERROR", "final": True, "code": "NOT_FOUND", "error": "nö"}),
    "execute_device": (frame(p.FRAME_EXECUTE, p.EXECUTE_HEAD.pack(8, 1, 0) + pack("<Q", p.DEVICE_SEGMENT << 40 | 7) + request(
        5, 2, [device("G", p.DATA_TYPE_FP32, [2, 4], 32, p.PLACE_DEVICE_REQUEST, lease=3)]), count=1), {
        "batch": 8, "releases": [p.DEVICE_SEGMENT << 40 | 7], "requests": [
            {"slot": 5, "generation": 2, "correlation": 0, "outputs": None, "inputs": [
                {"name": "G", "datatype": "FP32", "dims": [2, 4], "place": "DEVICE_REQUEST", "lease": 3, "device": 1, "offset": 256, "bytes": 32, "handle": bytes(range(64)).hex()}]}]}),
    "close_handle": (frame(p.FRAME_CLOSE_HANDLE, p.CLOSE_HANDLE.pack(1, 0) + bytes(range(64))), {"device": 1, "handle": bytes(range(64)).hex()}),
    "no_devices": (frame(p.FRAME_NO_DEVICES), {}),
    "segment": (frame(p.FRAME_SEGMENT, p.SEGMENT.pack(1 << 20, 2, p.PLACE_RESPONSE, 0)), {"bytes": 1 << 20, "segment": 2, "place": "RESPONSE", "refused": 0}),
    "release": (frame(p.FRAME_RELEASE, pack("<2Q", 64, 128), count=2), {"releases": [64, 128]}),
    "is_ready": (frame(p.FRAME_IS_READY, p.QUESTION.pack(11)), {"question": 11}),
    "load": (frame(p.FRAME_LOAD, b'{"mode":"run"}', p.VERSION), {"version": 2}),
    "unload": (frame(p.FRAME_UNLOAD), {}),
    "result": (result(7, [answer(p.ANSWER_RESPONSE, [X, STRINGS, SHARED], flags=p.ANSWER_FLAG_FINAL, parameters='{"a":1}'), answer(p.ANSWER_NONE)], [64]), {
        "batch": 7, "releases": [64], "answers": [
            {"kind": "RESPONSE", "final": True, "parameters": {"a": 1}, "outputs": [
                {"name": "X", "datatype": "FP32", "dims": [1, 2], "inline": "0000c03f000000c0"},
                {"name": "S", "datatype": "BYTES", "dims": [2], "inline": "02000000616200000000"},
                {"name": "Y", "datatype": "INT64", "dims": [1024], "place": "RESPONSE", "segment": 1, "offset": 4096, "bytes": 8192}]},
            {"kind": "NONE", "final": False}]}),
    "result_device": (result(9, [answer(p.ANSWER_RESPONSE, [
        device("G", p.DATA_TYPE_FP32, [2, 4], 32), device("H", p.DATA_TYPE_UINT8, [16], 16, p.PLACE_DEVICE_REQUEST, lease=3)], flags=p.ANSWER_FLAG_FINAL)], [p.DEVICE_SEGMENT << 40 | 2]), {
        "batch": 9, "releases": [p.DEVICE_SEGMENT << 40 | 2], "answers": [{"kind": "RESPONSE", "final": True, "outputs": [
            {"name": "G", "datatype": "FP32", "dims": [2, 4], "place": "DEVICE_RESPONSE", "lease": 7, "device": 1, "offset": 256, "bytes": 32, "handle": bytes(range(64)).hex()},
            {"name": "H", "datatype": "UINT8", "dims": [16], "place": "DEVICE_REQUEST", "lease": 3, "device": 1, "offset": 256, "bytes": 16, "handle": bytes(range(64)).hex()}]}]}),
    "result_failed": (result(8, error="ValueError: é", flags=p.RESULT_FLAG_FAILED), {"batch": 8, "failed": "ValueError: é"}),
    "respond": (frame(p.FRAME_RESPOND, p.RESPOND_HEAD.pack(3, 9) + answer(p.ANSWER_ERROR, code=p.CODE_INVALID_ARG, error="no")), {
        "slot": 3, "generation": 9, "kind": "ERROR", "code": "INVALID_ARG", "error": "no"}),
    "call": (frame(p.FRAME_CALL, p.CALL_HEAD.pack(1, -1, 3, 9, 5, p.CALL_FLAG_DECOUPLED, 0, 0) + b"other" + request(
        0, 0, [X], ["O"], flags=p.REQUEST_FLAG_SEQUENCE_END, id="b", text="c", parameters="{}", trace="{}")), {
        "call": 1, "version": -1, "parent": [3, 9], "decoupled": True, "model": "other", "id": "b", "correlation": "c", "outputs": ["O"]}),
    "call_cancel": (frame(p.FRAME_CALL_CANCEL, p.CALL_ID.pack(1)), {"call": 1}),
    "metric_update": (frame(p.FRAME_METRIC_UPDATE, p.METRIC_UPDATE.pack(2, 0.5, p.METRIC_OPERATION_OBSERVE)), {"metric": 2, "value": 0.5, "operation": "OBSERVE"}),
    "log": (frame(p.FRAME_LOG, p.LOG_HEAD.pack(p.LOG_LEVEL_WARNING, 0, 4, 12, 3) + b"m.pyhot"), {"level": "WARNING", "file": "m.py", "line": 12, "text": "hot"}),
    "need_segment": (frame(p.FRAME_NEED_SEGMENT, p.NEED_SEGMENT.pack(1 << 30)), {"bytes": 1 << 30}),
    "is_ready_result": (frame(p.FRAME_IS_READY_RESULT, p.IS_READY_RESULT.pack(11, 1)), {"question": 11, "is_ready": True}),
    "pong": (frame(p.FRAME_PONG, p.QUESTION.pack(12)), {"question": 12}),
    "ready": (frame(p.FRAME_READY, b'{"runner":"test","pid":1,"asks_ready":false}', p.VERSION), {"version": 2}),
    "respond_exhausted": (frame(p.FRAME_RESPOND, p.RESPOND_HEAD.pack(3, 9) + answer(p.ANSWER_ERROR, code=p.CODE_RESOURCE_EXHAUSTED, error="full")), {
        "slot": 3, "generation": 9, "kind": "ERROR", "code": "RESOURCE_EXHAUSTED", "error": "full"}),
    "control": (frame(p.FRAME_CONTROL, b'{"id":1,"operation":"is_ready","model":"m","version":""}'), {"id": 1}),
}


def one(output):
    return result(1, [answer(p.ANSWER_RESPONSE, [output])])


LIES = {
    "no such frame": frame(99),
    "a frame that only hosts send": frame(p.FRAME_EXECUTE, p.EXECUTE_HEAD.pack(1, 0, 0)),
    "longer than a frame may be": p.HEADER.pack(p.FRAME_BYTES_MAX + 1, p.FRAME_RESULT, 0, 0, 1, 0),
    "a result that ends early": frame(p.FRAME_RESULT, b"\0" * 15),
    "more bytes than its parts": frame(p.FRAME_PONG, p.QUESTION.pack(1) + b"x"),
    "more releases than bytes": frame(p.FRAME_RESULT, p.RESULT_HEAD.pack(1, 0xFFFFFFFF, 0) + answer(p.ANSWER_NONE), count=1),
    "failed with answers": result(1, [answer(p.ANSWER_NONE)], error="x", flags=p.RESULT_FLAG_FAILED),
    "no answers and not failed": result(1),
    "more answers announced": result(1, [answer(p.ANSWER_NONE)], count=2),
    "no such kind of answer": result(1, [answer(9)]),
    "no such code": result(1, [answer(p.ANSWER_ERROR, code=77)]),
    "a text that is no UTF-8": frame(p.FRAME_RESULT, p.RESULT_HEAD.pack(1, 0, 1) + b"\xff", flags=p.RESULT_FLAG_FAILED),
    "datatype 0": one(tensor("X", 0, [1], b"x")),
    "datatype 15": one(tensor("X", 15, [1], b"x")),
    "rank 65": one(tensor("X", p.DATA_TYPE_UINT8, [1] * 65, b"x")),
    "negative dim": one(tensor("X", p.DATA_TYPE_UINT8, [-1], b"x")),
    "product of dims overflows": one(tensor("X", p.DATA_TYPE_UINT8, [1 << 62, 4], b"")),
    "size overflows": one(tensor("X", p.DATA_TYPE_FP64, [1 << 62], place=p.PLACE_RESPONSE, length=0)),
    "fewer bytes than elements": one(tensor("X", p.DATA_TYPE_FP32, [2], b"1234")),
    "bytes of a scalar": one(tensor("X", p.DATA_TYPE_FP32, [], b"")),
    "no such place": one(tensor("X", p.DATA_TYPE_UINT8, [1], place=5, length=1)),
    "offset and length overflow": one(tensor("X", p.DATA_TYPE_UINT8, [64], place=p.PLACE_RESPONSE, offset=(1 << 64) - 32, length=64)),
    "offset beyond an id": one(tensor("X", p.DATA_TYPE_UINT8, [64], place=p.PLACE_RESPONSE, offset=1 << 40, length=64)),
    "device memory of no segment for devices": one(device("X", p.DATA_TYPE_UINT8, [1], 1, segment=0)),
    "strings on a device": one(device("X", p.DATA_TYPE_BYTES, [1], 4)),
    "a lease beyond an id": one(device("X", p.DATA_TYPE_UINT8, [1], 1, lease=1 << 40)),
    "an offset on a device that overflows": one(device("X", p.DATA_TYPE_UINT8, [1], 1, offset=(1 << 64) - 1)),
    "half a handle": one(device("X", p.DATA_TYPE_UINT8, [1], 1, handle=bytes(32))),
    "a frame about handles that only hosts send": frame(p.FRAME_CLOSE_HANDLE, p.CLOSE_HANDLE.pack(0, 0) + bytes(64)),
    "inline bytes that are not there": frame(p.FRAME_RESPOND, p.RESPOND_HEAD.pack(0, 0) + answer(p.ANSWER_RESPONSE, [
        p.TENSOR_HEAD.pack(1, p.DATA_TYPE_UINT8, 1, 0, 0, 0, 0, 1 << 40) + b"X" + pack("<q", 1 << 40)])),
    "a string longer than its tensor": one(tensor("S", p.DATA_TYPE_BYTES, [1], pack("<I", 9) + b"x")),
    "half a length of a string": one(tensor("S", p.DATA_TYPE_BYTES, [1], pack("<I", 0) + b"xx")),
    "fewer strings than elements": one(tensor("S", p.DATA_TYPE_BYTES, [2], pack("<I", 4) + b"abcd")),
    "more tensors than there may be": frame(p.FRAME_RESPOND, p.RESPOND_HEAD.pack(0, 0) + p.ANSWER_HEAD.pack(1, 0, 0xFFFF, 0, 0, 0)),
    "no such level": frame(p.FRAME_LOG, p.LOG_HEAD.pack(9, 0, 0, 0, 0)),
    "no such operation": frame(p.FRAME_METRIC_UPDATE, p.METRIC_UPDATE.pack(1, 0.0, 9)),
    "about the process, with a model": frame(p.FRAME_PONG, p.QUESTION.pack(1), model=1),
    "about an instance, without a model": frame(p.FRAME_LOG, p.LOG_HEAD.pack(0, 0, 0, 0, 0), model=0),
    "output names that end early": frame(p.FRAME_CALL, p.CALL_HEAD.pack(1, -1, 0, 0, 0, 0, 0, 0) + p.REQUEST_HEAD.pack(0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0) + b"\1\0"),
}

good = [{"name": name, "hex": made.hex(), "value": value} for name, (made, value) in GOOD.items()]
lies = [{"name": name, "hex": made.hex()} for name, made in LIES.items()]
(HERE / "frames.json").write_text(json.dumps({"good": good, "lies": lies}, indent=1, ensure_ascii=False) + "\n")
# What the fuzzer of frames starts from.
seeds = HERE.parents[1] / "fuzz/seeds/runner_frames"
seeds.mkdir(parents=True, exist_ok=True)
for name, (made, _) in GOOD.items():
    (seeds / name).write_bytes(made)

# What the fuzzer of worker threads starts from: the form of the model, then steps (fuzz/src/worker.rs).
WORK, SIDE, BATCH, CANCEL, RESULT, RESPOND, PRINT, MEMORY, END, ASK, UNLOAD = range(11)
DECOUPLED, ASKS_READY, ITERATIVE, GREETS = 1, 2, 4, 8


def script(form, *steps):
    return bytes([form]) + b"".join(bytes([step]) + pack("<H", len(content)) + content for step, content in steps)


def out(value=b"\7", **more):
    return answer(p.ANSWER_RESPONSE, [tensor("OUT", p.DATA_TYPE_UINT8, [len(value)], value)], flags=p.ANSWER_FLAG_FINAL, **more)


def call(number, version, model=b"other", parent=(0, 1)):
    return frame(p.FRAME_CALL, p.CALL_HEAD.pack(number, version, *parent, len(model), 0, 0, 0) + model + request(0, 0, [X], ["O"]))


def side(kind, content, **more):
    return SIDE, frame(kind, content, **more)


BLOCK = tensor("OUT", p.DATA_TYPE_UINT8, [4096], place=p.PLACE_RESPONSE, offset=64, length=4096)
RESHAPED = tensor("OUT_R", p.DATA_TYPE_FP32, [2, 1], pack("<2f", 1, 2))
OTHER = tensor("OUT_S", p.DATA_TYPE_BYTES, [1], pack("<I", 2) + b"ab")
NOTHING = answer(p.ANSWER_NONE)
LAST = answer(p.ANSWER_NONE, flags=p.ANSWER_FLAG_FINAL)
PART = answer(p.ANSWER_RESPONSE, [OTHER])
WORKERS = {
    "answers": script(0, (BATCH, b"\0\0"), (RESULT, out()), (BATCH, b"\3\2"), (WORK, result(2, [out(), out(b"ab"), answer(
        p.ANSWER_ERROR, code=p.CODE_NOT_FOUND, error="no"), answer(p.ANSWER_RESPONSE, [RESHAPED, OTHER], parameters='{"a":1}')], [0, 8256]))),
    "blocks": script(0, (MEMORY, b"\0\0\0\0\0\1"), (BATCH, b"\1\3"), (RESULT, answer(p.ANSWER_RESPONSE, [BLOCK]) + out()),
                     side(p.FRAME_RELEASE, pack("<2Q", 0, 70016), count=2), side(p.FRAME_NEED_SEGMENT, p.NEED_SEGMENT.pack(1 << 21)), (MEMORY, b"\0\1\0\0\0\1")),
    "inputs": script(0, (BATCH, b"\0\2"), (RESULT, answer(p.ANSWER_RESPONSE, [tensor("OUT", p.DATA_TYPE_UINT8, [5000], place=p.PLACE_REQUEST, length=5000)])),
                     (BATCH, b"\0\7"), (WORK, result(2, error="ValueError: no", flags=p.RESULT_FLAG_FAILED))),
    "decoupled": script(DECOUPLED, (BATCH, b"\0\0"), (RESPOND, b"\0" + PART), (RESPOND, b"\0" + PART), (RESULT, NOTHING), (BATCH, b"\0\1"), (CANCEL, b"\0"),
                        (RESPOND, b"\1" + PART), (RESULT, NOTHING), (RESPOND, b"\0" + LAST), (RESPOND, b"\1" + LAST)),
    "late": script(0, (BATCH, b"\1\0"), (RESULT, NOTHING + NOTHING), (CANCEL, b"\0"), side(p.FRAME_RESPOND, p.RESPOND_HEAD.pack(1, 1) + out()), (BATCH, b"\0\0"), (END, b"")),
    "calls": script(0, (BATCH, b"\0\0"), (WORK, call(1, 1)), (WORK, call(2, 2)), side(p.FRAME_CALL, call(3, 0)[p.HEADER.size:]), (CANCEL, b"\0"),
                    side(p.FRAME_CALL_CANCEL, p.CALL_ID.pack(2)), (SIDE, call(4, 3)), side(p.FRAME_CALL_CLOSE, p.CALL_ID.pack(4)), (SIDE, call(5, 2)), (RESULT, out())),
    "asks": script(ASKS_READY, (ASK, b""), side(p.FRAME_IS_READY_RESULT, p.IS_READY_RESULT.pack(1, 1)), (ASK, b""), (PRINT, b"\1one\ntwo"), side(
        p.FRAME_LOG, p.LOG_HEAD.pack(p.LOG_LEVEL_WARNING, 0, 4, 12, 3) + b"m.tshot"), side(p.FRAME_CONTROL, b'{"id":1,"operation":"is_ready","model":"m","version":""}'), side(
        p.FRAME_CONTROL, b'{"id":2,"operation":"family_new","name":"f","description":"d","kind":"counter"}'), side(
        p.FRAME_CONTROL, b'{"id":3,"operation":"metric_new","family":1,"labels":{"a":"b"}}'), side(
        p.FRAME_METRIC_UPDATE, p.METRIC_UPDATE.pack(1, 0.5, p.METRIC_OPERATION_INCREMENT)), (BATCH, b"\0\0"), (RESULT, out())),
    "iterative": script(ITERATIVE, (BATCH, b"\1\2"), (RESULT, answer(p.ANSWER_RESCHEDULE) + answer(p.ANSWER_RESCHEDULE, [OTHER])), (BATCH, b"\0\0"), (RESULT, out())),
    "greets": script(GREETS, (WORK, frame(p.FRAME_READY, b'{"runner":"t","asks_ready":true}', p.VERSION)), (BATCH, b"\0\0")),
    "fails": script(GREETS, (WORK, frame(p.FRAME_FAILED, b'{"text":"no","source":{"file":"/m.ts","line":1,"text":"x"},"missing":"y"}', p.VERSION))),
    "unloads": script(DECOUPLED, (BATCH, b"\1\0"), (UNLOAD, b""), (RESULT, NOTHING + NOTHING), (RESPOND, b"\0" + LAST)),
    "lies": script(0, (BATCH, b"\1\1"), (WORK, result(1, [out()])), (SIDE, frame(p.FRAME_LOG, b"\0")), (RESULT, out() + out())),
}
seeds = HERE.parents[1] / "fuzz/seeds/worker"
seeds.mkdir(parents=True, exist_ok=True)
for name, made in WORKERS.items():
    (seeds / name).write_bytes(made)
