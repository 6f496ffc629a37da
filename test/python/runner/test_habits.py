"""What models do beside the API: they change the list they were given, start processes, and drop objects that were never made."""
import signal

import pytest
from runner_host import In, P

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
