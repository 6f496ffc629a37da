"""From LOAD to the end of the process: B-PY-02, B-PY-03, B-PY-19, B-PY-22, B-PY-24, B-PY-26, B-PY-32, B-PYR-09, B-PYR-11."""
import json
import os
import signal
import time

import numpy as np
import pytest
from runner_host import RUNTIME, Host, In, P, until
from test_execute import HEAD, SNIPPET, code

FINE = "import numpy as np\nimport triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n"
EXECUTE = "    def execute(self, requests):\n        return [pb_utils.InferenceResponse([]) for _ in requests]\n"


def test_b_py_02_initialize_gets_texts_by_name(host):
    one = host(HEAD + '''
    def initialize(self, args):
        self.args = dict(args)
        args.clear()

    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array([json.dumps(self.args)], dtype=object))])]
''', config='{"max_batch_size":0}')
    got = json.loads(one.run([])[0]["OUT"][0])
    assert got == one.load_json["arguments"] and got["model_config"] == '{"max_batch_size":0}'


FACTS = HEAD.replace("class Tri", '''AT_IMPORT = [__name__, __package__, sys.argv, threading.current_thread() is threading.main_thread(), pb.get_model_dir(), sys.path[-3:], sys.path[0], __file__]


class Tri''') + '''
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array([json.dumps(AT_IMPORT)], dtype=object))])]
'''


def test_b_py_03_the_code_is_a_module_of_its_version(host):
    one = host(FACTS)
    directory = one.directory
    paths = [directory, os.path.dirname(directory), RUNTIME]
    assert json.loads(one.run([])[0]["OUT"][0]) == ["1.model", "1", [""], True, directory, paths, RUNTIME, os.path.join(directory, "model.py")]


def test_b_py_03_a_backends_code_has_no_package(host):
    one = host(FACTS, package="")
    assert json.loads(one.run([])[0]["OUT"][0])[:2] == ["model", ""]


def test_b_py_03_helpers_are_found_in_order(host):
    files = {"1/plain.py": "WHAT = 'plain'", "1/both.py": "WHAT = 'version'", "both.py": "WHAT = 'model'", "top.py": "WHAT = 'top'", "1/sub/__init__.py": "", "1/sub/inner.py": "from ..plain import WHAT", "1/json.py": "x = 1", "1/numpy.py": "1 / 0"}
    text = "import plain, both, top\nfrom .sub.inner import WHAT\nfrom . import plain as again\n" + HEAD + '''
    def execute(self, requests):
        found = [plain.WHAT, both.WHAT, top.WHAT, WHAT, again.__name__, json.dumps(1)]
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array(found, dtype=object))])]
'''
    assert host(text, files=files).run([])[0]["OUT"] == [b"plain", b"version", b"top", b"plain", b"1.plain", b"1"]


@pytest.mark.parametrize(
    "text",
    ["\ufeff" + FINE + EXECUTE, (FINE + EXECUTE).replace("\n", "\r\n"), FINE.replace("class TritonPythonModel", "class M") + EXECUTE + "\ndef TritonPythonModel():\n    return M()\n",
     FINE + EXECUTE + "    async def initialize(self, args):\n        1 / 0\n", FINE + EXECUTE + "    @staticmethod\n    def initialize(args):\n        args['model_name']\n"],
    ids=["bom", "crlf", "function", "async", "static"],
)  # fmt: skip
def test_b_py_03_unusual_files_load(host, text):
    assert host(text).run([])[0].kind == P.ANSWER_RESPONSE


RAISES = FINE + EXECUTE + "    def initialize(self, args):\n        %s\n"


@pytest.mark.parametrize(
    "text, told, line",
    [
        (RAISES % "raise ValueError('bad value')", "ValueError: bad value\n\nAt:\n  {file}(9): initialize\n", "        raise ValueError('bad value')"),
        (RAISES % "raise SystemExit('bye')", "SystemExit: bye\n\nAt:\n  {file}(9): initialize\n", "        raise SystemExit('bye')"),
        (RAISES % "args['nope']", "KeyError: 'nope'\n\nAt:\n  {file}(9): initialize\n", "        args['nope']"),
        (RAISES % "raise ValueError('a\\0b')", "ValueError: a", "        raise ValueError('a\\0b')"),
        ("x = 1\ny = undefined_name\n", "NameError: name 'undefined_name' is not defined\n\nAt:\n  {file}(2): <module>\n", "y = undefined_name"),
        ("import sys\nsys.exit(0)\n", "SystemExit: 0\n\nAt:\n  {file}(2): <module>\n", "sys.exit(0)"),
        ("x = 1\n", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'", None),
        ("TritonPythonModel = None\n", "TypeError: 'NoneType' object is not callable", None),
    ],
    ids=["value", "exit", "key", "nul", "import", "import exit", "class", "none"],
)
def test_b_py_24_a_failed_load_names_file_and_line(host, text, told, line):
    one = host(text)
    assert one.failed
    assert one.greeting["text"] == told.replace("{file}", one.load_json["file"])
    assert (one.greeting["source"] or {}).get("text") == line
    assert one.wait() != 0


def test_b_py_24_a_syntax_error_shows_the_line(host):
    one = host("class TritonPythonModel:\n    def execute(self, requests)\n        return []\n")
    assert one.failed and one.greeting["text"].startswith("SyntaxError: ") and "At:" not in one.greeting["text"]
    source = one.greeting["source"]
    assert (source["line"], source["text"]) == (2, "    def execute(self, requests)") and source["file"].endswith("model.py")


def test_b_py_24_a_missing_package_is_named(host):
    one = host("import json\nimport no_such_package.part\n")
    assert (one.failed, one.greeting["missing"], one.greeting["source"]["line"]) == (True, "no_such_package", 2)
    assert one.greeting["text"].startswith("ModuleNotFoundError: No module named 'no_such_package'\n\nAt:\n")
    one = host(FINE, module="my.model")
    assert (one.greeting["text"], one.greeting["missing"]) == ("ModuleNotFoundError: No module named '1.my'", None)


COMPLETE = FINE + "    @staticmethod\n    def auto_complete_config(c):\n%s\n"


def completed(host, body, **more):
    one = host(COMPLETE % "\n".join("        " + line for line in body.split("\n")) + EXECUTE, mode="complete", segments=None, config='{"name":"m","max_batch_size":0,"input":[],"output":[]}', **more)
    return one, one.greeting


def test_b_py_22_a_process_of_its_own_completes_the_configuration(host):
    one, greeting = completed(host, "c.add_input({'name': 'X', 'data_type': 'TYPE_FP32', 'dims': [1]})\nreturn c")
    assert not one.failed and json.loads(greeting["config"])["input"] == [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}]
    assert one.wait() == 0
    one = host(FINE + EXECUTE, mode="complete", segments=None, config="{}")
    assert not one.failed and one.greeting["config"] is None and one.wait() == 0


@pytest.mark.parametrize(
    "body, text",
    [
        ("return None", "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."),
        ("return c.as_dict()", "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."),
        ("c.as_dict()['x'] = float('nan')\nreturn c", "Failed to accept document, invalid JSON."),
        ("import sys\nsys.exit(3)", "SystemExit: 3\n\nAt:\n  {file}(9): auto_complete_config\n"),
        ("return pb_utils.is_model_ready('m')", "TritonModelException: Model control, metrics and BLS are not available in the 'auto_complete_config' function.\n\nAt:\n  {file}(8): auto_complete_config\n"),
        ("pb_utils.MetricFamily('a', 'b', pb_utils.MetricFamily.GAUGE)", "TritonModelException: Model control, metrics and BLS are not available in the 'auto_complete_config' function.\n\nAt:\n  {file}(8): auto_complete_config\n"),
        ("pb_utils.InferenceRequest(model_name='n', inputs=[], requested_output_names=['X']).exec()", "TritonModelException: BLS is only supported during the 'execute' function.\n\nAt:\n  {file}(8): auto_complete_config\n"),
    ],
    ids=["none", "dict", "nan", "exit", "control", "metric", "bls"],
)  # fmt: skip
def test_b_py_22_what_goes_wrong_there_fails_the_load(host, body, text):
    one, greeting = completed(host, body)
    assert one.failed and greeting["text"] == text.replace("{file}", one.load_json["file"])
    assert one.wait() != 0


@pytest.mark.parametrize("declared", ["    @classmethod\n    def auto_complete_config(cls, c):\n        return c\n", "    def auto_complete_config(c):\n        return c\n"])
def test_b_py_22_class_methods_and_plain_functions_do(host, declared):
    one = host(FINE + EXECUTE + declared, mode="complete", segments=None, config='{"name":"m"}')
    assert json.loads(one.greeting["config"]) == {"name": "m"}


def test_b_py_32_finalize_runs_at_the_end_and_exit_handlers_too(host, tmp_path):
    wrote = tmp_path / "wrote"
    text = f'''import atexit, threading, time
{FINE}{EXECUTE}
    def initialize(self, args):
        atexit.register(lambda: open({str(wrote)!r}, "a").write("atexit\\n"))
        threading.Thread(target=time.sleep, args=(600,)).start()

    def finalize(self):
        pb_utils.Logger.log_info("ending")
        open({str(wrote)!r}, "a").write("finalize\\n")
        raise ValueError("does not matter")
'''
    one = host(text)
    assert one.finalize() == 0
    assert wrote.read_text() == "finalize\natexit\n"
    until(lambda: len(one.logs) == 2)
    assert one.logs[0][3] == "ending" and "finalize: ValueError: does not matter" in one.logs[1][3]


def test_b_py_32_a_model_that_failed_to_start_is_not_finalized(host, tmp_path):
    one = host(RAISES % "raise ValueError()" + f"    def finalize(self):\n        open({str(tmp_path / 'wrote')!r}, 'w')\n")
    assert one.failed and one.wait() != 0 and not (tmp_path / "wrote").exists()


def test_b_py_19_lines_of_the_log_have_their_place(host):
    one = host(SNIPPET)
    one.run(code("pb.Logger.log_warn('a')\npb.Logger.log('b', pb.Logger.VERBOSE)\npb.Logger.log(message='c\\nd', level=pb.Logger.ERROR)\npb.Logger.log_info('\u4e2d')\nreturn [out(1)]"))
    until(lambda: len(one.logs) == 4)
    assert one.logs == [(P.LOG_LEVEL_WARNING, "<snippet>", 2, "a"), (P.LOG_LEVEL_VERBOSE, "<snippet>", 3, "b"), (P.LOG_LEVEL_ERROR, "<snippet>", 4, "c\nd"), (P.LOG_LEVEL_INFO, "<snippet>", 5, "\u4e2d")]
    one = host(FINE + "    def initialize(self, args):\n        pb_utils.Logger.log_info('from the model')\n" + EXECUTE)
    until(lambda: one.logs)
    assert one.logs == [(P.LOG_LEVEL_INFO, "model.py", 7, "from the model")]


READY = HEAD + EXECUTE.replace("pb_utils", "pb") + "    %sdef is_ready(self):\n        %s\n"


@pytest.mark.parametrize(
    "answer, is_ready",
    [("return True", 1), ("return False", 0), ("return 1", 0), ("return None", 0), ("return np.bool_(True)", 0), ("raise ValueError('not now')", 0), ("sys.exit(1)", 0), ("self.n = getattr(self, 'n', 0) + 1; return self.n < 5", 1)],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["", "async "])
def test_b_py_26_only_true_is_ready(host, answer, is_ready, kind):
    one = host(READY % (kind, answer))
    assert one.greeting["asks_ready"]
    for question in (7, 8):
        one.send(one.side, P.FRAME_IS_READY, P.QUESTION.pack(question))
        assert one.ready_answers.get(timeout=60) == (question, is_ready)


def test_b_py_26_readiness_is_told_while_execute_is_busy(host):
    one = host(HEAD + '''
    asked = threading.Event()

    def is_ready(self):
        self.asked.set()
        return True

    def execute(self, requests):
        assert self.asked.wait(60)
        return [pb.InferenceResponse([])]
''')
    one.start([])
    one.send(one.side, P.FRAME_IS_READY, P.QUESTION.pack(1))
    assert one.ready_answers.get(timeout=60) == (1, 1)
    assert one.result()[0].kind == P.ANSWER_RESPONSE
    one.send(one.side, P.FRAME_PING, P.QUESTION.pack(99))
    assert one.pongs.get(timeout=60) == 99
    assert not host(FINE + EXECUTE).greeting["asks_ready"]


@pytest.mark.parametrize(
    "busy",
    ["time.sleep(600)", "pb.is_model_ready('x')", "pb.InferenceRequest(model_name='n', inputs=[], requested_output_names=[]).exec()", "pb.Tensor('a', np.zeros(1 << 20)); return [pb.InferenceResponse([pb.Tensor('OUT', np.zeros(1 << 20))])]"],
    ids=["sleep", "control", "call", "memory"],
)  # fmt: skip
@pytest.mark.parametrize("how", ["side", "both"])
def test_b_pyr_09_a_runner_ends_with_its_host_whatever_it_waits_for(tmp_path, busy, how):
    one = Host(tmp_path, SNIPPET, segment_max=0)
    one.on_control = lambda m: time.sleep(600)
    one._more = lambda size: None
    one.start(code("open(self.kept.setdefault('d', %r), 'w')\n%s" % (str(tmp_path / "began"), busy)))
    until((tmp_path / "began").exists)
    one.side.shutdown(2)
    if how == "both":
        one.work.close()
    assert one.wait() == 1
    one.work.close()


def test_b_pyr_09_an_idle_runner_ends_with_its_host(tmp_path):
    one = Host(tmp_path, SNIPPET)
    one.work.close()
    assert one.wait() == 1


def test_b_py_32_signals_of_a_terminal_are_not_heard(host):
    one = host(SNIPPET)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(one.pid, number)
    assert one.run(code("return [out(1)]"))[0]["OUT"] == [b"1"]


def test_b_pyr_08_stacks_are_dumped_on_a_signal(host, tmp_path):
    log = tmp_path / "stderr"
    one = host(SNIPPET, stderr=log)
    one.start(code("open(%r, 'w')\nself.kept['stop'] = 0\nwhile not requests[0].is_cancelled(): pass\nreturn [out(1)]" % str(tmp_path / "began")))
    until((tmp_path / "began").exists)
    os.kill(one.pid, signal.SIGUSR2)
    until(lambda: "in snippet" in log.read_text() and "in listen" in log.read_text())
    one.flags[0] = 1 << 1 | 1
    assert one.result()[0]["OUT"] == [b"1"]


def test_b_pyr_11_processes_of_a_model_get_no_descriptors(host):
    one = host(SNIPPET)
    text = "import subprocess\nr = subprocess.run(['ls', '/proc/self/fd'], close_fds=False, stdout=subprocess.PIPE).stdout.split()\nreturn [out([int(x) for x in r if 3 <= int(x) <= 7])]"
    got = json.loads(one.run(code(text))[0]["OUT"][0])
    assert len(got) <= 1, "only the directory that ls reads"


def test_b_py_16_a_forked_child_says_nothing(host):
    one = host(SNIPPET)
    text = "import os\ns = request.get_response_sender()\npid = os.fork()\nif not pid:\n    s.send(out('child'), 1)\n    pb.Logger.log_info('child')\n    os._exit(0)\nos.waitpid(pid, 0)\nreturn [out('parent')]"
    assert one.run(code(text))[0]["OUT"] == [b'"parent"']
    text = "import os\npid = os.fork()\nif not pid:\n    raise ValueError('in the child')\nos.waitpid(pid, 0)\nreturn [out('parent')]"
    assert one.run(code(text))[0]["OUT"] == [b'"parent"']
    one.send(one.side, P.FRAME_PING, P.QUESTION.pack(1))
    assert one.pongs.get(timeout=60) == 1 and one.responds.empty() and one.logs == []


def test_b_pyr_01_another_version_of_the_protocol_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(P, "VERSION", 99)
    one = Host(tmp_path, SNIPPET)
    assert one.failed and one.greeting["text"] == "the server speaks version 99 of the runner protocol, this runtime 2"
    one.close()


def test_b_pyr_01_frames_that_come_in_pieces_are_put_together(host):
    one = host(SNIPPET, segments=None)
    body = P.EXECUTE_HEAD.pack(1, 0, 0) + one.encode(code("return [out(len(%r))]" % ("x" * 300000)), slot=0, generation=1)
    frame = P.HEADER.pack(len(body), P.FRAME_EXECUTE, 0, 1, 1, 0) + body
    for at in range(0, len(frame), 40_000):
        one.work.sendall(frame[at : at + 40_000])
        time.sleep(0.002)
    assert one.result()[0]["OUT"] == [b"300000"]
    one.work.sendall(frame[:5])
    time.sleep(0.01)
    one.work.sendall(frame[5:])
    assert one.result()[0]["OUT"] == [b"300000"]
    small = P.EXECUTE_HEAD.pack(1, 0, 0) + one.encode(code("return [out(1)]"), slot=0, generation=1)
    one.work.sendall((P.HEADER.pack(len(small), P.FRAME_EXECUTE, 0, 1, 1, 0) + small) * 3)
    assert [one.result()[0]["OUT"] for _ in range(3)] == [[b"1"]] * 3


def test_b_pyr_01_large_tensors_go_inline_where_there_is_no_memory(host):
    one = host(SNIPPET, segments=None)
    (answer,) = one.run([*code("return [pb.InferenceResponse([pb.Tensor('OUT', requests[0].inputs()[1].as_numpy() + 1)])]"), In("X", np.zeros(200_000, "f4"))])
    assert answer["OUT"] == [1.0] * 200_000 and answer.outputs[0].place == P.PLACE_INLINE
