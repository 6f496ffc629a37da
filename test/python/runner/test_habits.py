"""Habits of models beside the API: they change the list of requests, start processes, and drop objects that were never initialised."""
import signal
import socket
import threading

import numpy as np
import pytest
from nereid_runner import channel
from runner_host import In, P, until

HEAD = "import os, subprocess, multiprocessing, sys, json\nimport numpy as np\nimport triton_python_backend_utils as pb\n\n\n"
BATCH = HEAD + '''
def answer(request):
    value = request.inputs()[0].as_numpy()
    return pb.InferenceResponse([pb.Tensor("OUT", value)])


class TritonPythonModel:
    def execute(self, requests):
        %s
'''
THREE = [[In("IN", ["c"])], [In("IN", ["a"])], [In("IN", ["b"])]]


@pytest.mark.parametrize(
    "body",
    [
        "requests.sort(key=lambda r: r.inputs()[0].as_numpy()[0]); return [answer(r) for r in requests]",
        "requests.reverse(); return [answer(r) for r in requests]",
        "requests[0], requests[1] = requests[1], requests[0]; return [answer(r) for r in requests]",
        "return [answer(r) for r in requests]",
    ],
)
def test_b_py_23_answers_belong_to_requests_also_where_the_list_was_sorted(host, body):
    one = host(BATCH % body)
    for _ in range(2):
        assert [a["OUT"] for a in one.run(*THREE)] == [[b"c"], [b"a"], [b"b"]]


@pytest.mark.parametrize("decoupled", [True, False])
def test_b_py_16_requests_taken_out_of_the_list_are_answered_by_their_senders(host, decoupled):
    body = """while requests:
            request = requests.pop()
            request.get_response_sender().send(answer(request), flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"""
    one = host(BATCH % body, decoupled=decoupled)
    for _ in range(2):
        batch = one.start(*THREE)
        assert [a.kind for a in one.result()] == [P.ANSWER_NONE] * 3
        got = [one.responds.get(timeout=60) for _ in THREE]
        assert sorted((slot, answer["OUT"]) for slot, generation, answer in got) == [(0, [b"c"]), (1, [b"a"]), (2, [b"b"])]
        assert {generation for _, generation, _ in got} == {batch}


@pytest.mark.parametrize("body", ["requests.clear(); raise ValueError('x')", "requests.pop(); raise ValueError('x')"])
def test_b_py_24_an_exception_fails_requests_that_were_taken_out_of_the_list(host, body):
    assert "message: ValueError: x" in host(BATCH % body).run(*THREE)
    answered = host(BATCH % f"r = requests[2]; r.get_response_sender().send(answer(r), 1); {body}", decoupled=True)
    answered.start(*THREE)
    assert [a.kind for a in answered.result()] == [P.ANSWER_ERROR, P.ANSWER_ERROR, P.ANSWER_NONE]


def test_b_py_23_a_list_that_lost_requests_is_counted_as_the_model_left_it(host):
    one = host(BATCH % "requests.pop(); return [answer(r) for r in requests] + [None]")
    text = one.run(*THREE)
    assert "InferenceRequest(s) size is:2, and InferenceResponse(s) size is:3" in text


PROCESSES = {
    "subprocess.terminate": """p = subprocess.Popen(["sleep", "600"]); p.terminate(); done = p.wait(20)""",
    "Process.terminate": """import time
        p = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)); p.start(); p.terminate(); p.join(20); done = p.exitcode""",
    "SIGINT": """import signal
        p = subprocess.Popen(["sleep", "600"]); p.send_signal(signal.SIGINT); done = p.wait(20)""",
}


@pytest.mark.parametrize("name", PROCESSES)
def test_b_pyr_11_processes_of_a_model_hear_signals(host, name):
    one = host(BATCH % (PROCESSES[name] + """
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array([done], np.int32))]) for r in requests]"""))
    (answer,) = one.run([In("IN", ["a"])])
    assert answer["OUT"] == [-(signal.SIGINT if name == "SIGINT" else signal.SIGTERM)]


POOL = HEAD + '''
def double(x):
    return 2 * x


class TritonPythonModel:
    def execute(self, requests):
        with multiprocessing.get_context("%s").Pool(2) as pool:
            found = pool.map(double, [1, 2, 3])
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array(found, np.int32))]) for r in requests]
'''


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_b_pyr_11_pools_of_processes_work_and_end(host, start):
    one = host(POOL % start)
    for _ in range(2):
        (answer,) = one.run([In("IN", ["a"])])
        assert answer["OUT"] == [2, 4, 6]
    assert one.finalize() == 0


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["InferenceResponseSender", "ResponseIterator", "Metric", "InferenceTrace"])
def test_b_py_01_objects_that_cannot_be_made_leave_nothing_behind(name):
    import gc

    import c_python_backend_utils as c

    with pytest.raises(TypeError, match="No constructor defined"):
        getattr(c, name)()
    gc.collect()


def test_b_py_14_any_sequence_of_tensors_is_taken():
    import collections

    import triton_python_backend_utils as pb

    one = pb.Tensor("a", np.zeros(1))
    array = np.empty(1, object)
    array[0] = one
    for sequence in ([one], (one,), collections.deque([one]), array):
        assert pb.InferenceResponse(sequence).output_tensors() == [one]
        request = pb.InferenceRequest(inputs=sequence, requested_output_names=collections.deque(["O"]), model_name="m")
        assert request.inputs() == [one] and request.requested_output_names() == {"O"}
    for wrong in ({one}, {"a": one}, "ab", b"ab", 5, one):
        with pytest.raises(TypeError, match="incompatible constructor arguments"):
            pb.InferenceResponse(wrong)
    kept = [one]
    response = pb.InferenceResponse(kept)
    kept.clear()
    assert response.output_tensors() == [one]


LONG = 1_000_000


def test_b_py_24_texts_without_end_are_cut(host):
    one = host(BATCH % f"raise ValueError('x' * {LONG})")
    assert len(one.run(*THREE)) < 70_000
    one = host(BATCH % f"pb.Logger.log_info('y' * {LONG}); return [pb.InferenceResponse([], pb.TritonError('z' * {LONG}))] * 3")
    assert {len(a.error) for a in one.run(*THREE)} == {65536}
    until(lambda: one.logs)
    assert len(one.logs[0][3]) == 65536


def test_b_pyr_01_what_fits_into_no_frame_is_an_error_and_not_a_frame(monkeypatch):
    import triton_python_backend_utils as pb
    from nereid_runner import link, server, wire

    codec = wire.Codec("m", None, None)
    big = {"a": "x" * 5000}
    parts = []
    monkeypatch.setattr(wire, "PARAMETERS_BYTES_MAX", 4000)
    length = codec.answer_of_batch(parts, pb.InferenceResponse([], parameters=big), None)
    assert length == sum(map(len, parts)) and b"the parameters of a response have at most 4000 bytes" in parts[0]
    monkeypatch.setattr(wire, "FRAME_BYTES_MAX", 4000)
    request = pb.InferenceRequest(inputs=[], requested_output_names=[], model_name="m", parameters=big)
    with pytest.raises(wire.TooLarge, match="may have 4000 bytes"):
        codec.call(1, request, None, False)
    monkeypatch.setattr(server, "FRAME_BYTES_MAX", 4000)
    with pytest.raises(link.Refused, match="may have 4000 bytes"):
        server._control(1, "load", {"files": big})


def test_b_pyr_01_small_frames_leave_with_those_of_a_sending_thread_in_order():
    ours, theirs = socket.socketpair()
    side = channel.Side(ours)
    name = lambda thread, number: b"%d %4d;" % (thread, number)
    ends = []

    def sends(thread, numbers):
        for number in numbers:
            side.send(name(thread, number))
        ends.append(thread)

    # It waits for a reader and has the lock.
    large = b"x" * (4 << 20)
    first = threading.Thread(target=side.send, args=(large,))
    first.start()
    assert theirs.recv(1) == b"x"
    until(side._lock.locked)
    # 64 small frames wait for it; the sender of another one, and of a large one, waits itself.
    sends(1, range(64))
    others = [threading.Thread(target=sends, args=args) for args in [(2, range(64, 200)), (3, range(10))]]
    for thread in others:
        thread.start()
    assert ends == [1] and len(side._later) == 64
    came = b"x"
    while len(came) < len(large) + 7 * 210:
        came += theirs.recv(1 << 16)
    for thread in [first, *others]:
        thread.join()
    side.settle()
    assert came[: len(large)] == large
    rest = [tuple(map(int, one.split())) for one in came[len(large) :].split(b";") if one]
    for thread, numbers in [(1, range(64)), (2, range(64, 200)), (3, range(10))]:
        assert [number for of, number in rest if of == thread] == list(numbers)
