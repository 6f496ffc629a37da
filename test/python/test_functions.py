"""Functions as models: the Python package from packaging/wheel, which starts the server of this clone."""
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from clients import Client
from server import ROOT, free_ports, until, waits_for

PACKAGE = os.path.join(ROOT, "packaging/wheel")
VARIABLES = {"NEREID_MAIN": os.path.join(ROOT, "dist/cli/main.js"), "PYTHONPATH": PACKAGE}
os.environ["NEREID_MAIN"] = VARIABLES["NEREID_MAIN"]
sys.path.insert(0, PACKAGE)

import functions  # noqa: E402
import nereid  # noqa: E402

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="functions run on Linux"),
    # A thread whose connection was closed ends with SystemExit, which Python itself does not report.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(scope="module", params=["process", "inline"])
def served(request):
    every = [one for one in functions.EVERY if request.param == "process" or one is not functions.die]
    with nereid.serve(*every, inline=request.param == "inline", log_verbose=1) as server:
        server.kind = request.param
        yield server


def bytes_of(*texts, shape=None):
    return np.array([t.encode() for t in texts], np.object_).reshape(shape or (len(texts),))


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_each_kind_of_function_answers_with_its_shapes(served, kind):
    client = Client(kind, served.http_address if kind == "http" else served.grpc_address)

    def ask(model, **arrays):
        result = client.infer(model, arrays)
        outputs = client.response(result)["outputs"]
        return {o["name"]: result.as_numpy(o["name"]) for o in outputs}

    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    found = ask("double", x=x)
    assert found["OUTPUT0"].dtype == np.float32 and found["OUTPUT0"].tolist() == (x * 2).tolist()
    assert found["OUTPUT1"].dtype == np.int64 and found["OUTPUT1"].tolist() == [[2], [2]]
    assert ask("plus", x=x)["OUTPUT0"].tolist() == (x + 1).tolist()
    assert ask("plus", x=x, more=x)["OUTPUT0"].tolist() == (x + x).tolist()
    assert ask("shout", text=bytes_of("hé"))["OUTPUT0"].tolist() == ["HÉHÉ!".encode()]
    three = ask("shout", text=bytes_of("a"), times=np.array([3]), mark=bytes_of("?"))["OUTPUT0"]
    assert three.shape == (1,) and three.tolist() == [b"AAA?"]
    found = ask("lengths", texts=bytes_of("a", "hé", shape=(2, 1)))["OUTPUT0"]
    assert found.dtype == np.int64 and found.tolist() == [[1], [2]]
    found = ask("sides", x=np.array([-1, 0, 1], np.float32))
    assert found["low"].tolist() == [-1] and found["high"].tolist() == [0, 1]
    found = ask("explicit", **{"A B": np.array([[1, 2], [3, 4]], np.int32)})
    assert found["SUM"].dtype == np.int32 and found["SUM"].tolist() == [3, 7]


def test_requests_that_wait_are_one_call(served):
    client = Client("grpc", served.grpc_address)
    x = np.ones((1, 3), np.float32)

    def rows(_):
        return int(client.infer("double", {"x": x}).as_numpy("OUTPUT1")[0, 0])

    with ThreadPoolExecutor(16) as pool:
        assert max(pool.map(rows, range(64))) >= 8


@pytest.mark.parametrize("model, arrays, expected", [
    ("count", {"n": np.array([3])}, [[0], [1], [2]]),
    ("words", {"text": bytes_of("a bc d")}, [[b"a"], [b"bc"], [b"d"]]),
])
def test_generators_send_their_values_one_by_one(served, model, arrays, expected):
    came, done = [], threading.Event()

    def take(result, error):
        assert error is None, error
        if result.as_numpy("OUTPUT0") is not None:
            came.append(result.as_numpy("OUTPUT0").tolist())
        if result.get_response().parameters["triton_final_response"].bool_param:
            done.set()

    with tritonclient.grpc.InferenceServerClient(served.grpc_address) as client:
        client.start_stream(take)
        client.async_stream_infer(model, [Client("grpc", served.grpc_address).input(n, a) for n, a in arrays.items()],
            enable_empty_final_response=True)
        assert done.wait(10)
    assert came == expected


def test_an_async_function_answers_many_requests_at_once(served):
    client = Client("grpc", served.grpc_address)
    start = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: client.infer("sleep", {"seconds": np.array([0.5])}), range(8)))
    assert time.monotonic() - start < 2.0


def test_a_class_is_made_once_per_instance(served):
    client = Client("http", served.http_address)
    results = [client.infer("Sum", {"step": np.array([5])}) for _ in range(2)]
    first, second = (r.as_numpy("OUTPUT0")[0] for r in results)
    assert second - first == 5
    is_here = results[0].as_numpy("OUTPUT1")[0] == os.getpid()
    assert is_here == (served.kind == "inline")


@pytest.mark.parametrize("kind, text", [
    ("rows", "output 'OUTPUT0' of 'wrong' has the shape [2, 1]; expected [1, -1]; the function got 1 rows and has to return as many"),
    ("dtype", "output 'OUTPUT0' of 'wrong' has the type float64; expected float32: use .astype(np.float32)"),
    ("shape", "output 'OUTPUT0' of 'wrong' has the shape [1]; expected [1, -1]"),
    ("raise", "LookupError: no such kind"),
    ("none", "output 'OUTPUT0' of 'wrong' is None; expected float32: is a return missing?"),
])
def test_a_wrong_result_names_the_output_and_what_was_expected(served, kind, text):
    with pytest.raises(InferenceServerException) as error:
        Client("http", served.http_address).infer("wrong", {"kind": bytes_of(kind, shape=(1, 1))})
    assert text in str(error.value)


def test_a_crash_costs_only_the_requests_of_that_function():
    with nereid.serve(functions.die, functions.lengths) as server:
        client = Client("http", server.http_address)
        with pytest.raises(InferenceServerException):
            client.infer("die", {"text": bytes_of("a")})
        assert client.infer("lengths", {"texts": bytes_of("abc", shape=(1, 1))}).as_numpy("OUTPUT0").tolist() == [[3]]


@pytest.mark.parametrize("what, text", [
    (lambda x: x, "parameter 'x' of 'f' has no type hint"),
    ("def f(x: int): ...", "the result of 'f' has no type hint"),
    ("def f(x: list) -> int: ...", "parameter 'x' of 'f' has the type hint 'list'"),
    ("def f() -> int: ...", "'f' has no parameters"),
    ("def f(*x: int) -> int: ...", "takes any number of values"),
    ("@batch\ndef f(x: str) -> list[str]: ...", "with batch=2 the function gets all rows at once: write list[str]"),
    ("@batch\ndef f(x: list[str]):\n  yield x", "is a generator, which answers one request at a time"),
    ("class f: pass", "class 'f' has no method __call__"),
])
def test_a_function_that_is_no_model_is_told_what_to_write(what, text):
    made = {"batch": lambda f: nereid.model(f, batch=2)}
    with pytest.raises(TypeError) as error:
        if isinstance(what, str):
            exec(what, made)
            nereid.model(made["f"])
        else:
            nereid.model(what, name="f")
    assert text in str(error.value)


def test_two_functions_with_one_name_are_rejected():
    with pytest.raises(ValueError, match="two models are called 'count'"):
        nereid.serve(functions.count, functions.count)


def run(code, tmp_path, *arguments, **options):
    file = tmp_path / "app.py"
    file.write_text(textwrap.dedent(code))
    return subprocess.Popen([sys.executable, str(file), *arguments], env={**os.environ, **VARIABLES}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, **options)


SCRIPT = """
    import sys, time
    import numpy as np, nereid
    from numpy.typing import NDArray

    @nereid.model(batch=8)
    def double(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x * 2

    print("imported", __name__, flush=True)
    with nereid.serve(double, inline="inline" in sys.argv) as server:
        print(server.pid, server.http_url, flush=True)
        time.sleep(60)
"""


def post(url, model="double"):
    body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
    with urllib.request.urlopen(f"{url}/v2/models/{model}/infer", json.dumps(body).encode(), timeout=10) as answer:
        return json.load(answer)["outputs"][0]


def is_alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def test_a_script_needs_no_guard_against_its_own_import(tmp_path):
    process = run(SCRIPT, tmp_path)
    assert process.stdout.readline() == "imported __main__\n"
    pid, url = process.stdout.readline().split()
    assert post(url) == {"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 2], "data": [2.0, 4.0]}
    # As Ctrl-C does.
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    assert not is_alive(int(pid))


def test_a_server_of_inline_functions_ends_with_its_program(tmp_path):
    process = run(SCRIPT, tmp_path, "inline")
    process.stdout.readline()
    pid, url = process.stdout.readline().split()
    assert post(url)["data"] == [2.0, 4.0]
    process.kill()
    process.wait()
    waits_for(lambda: not is_alive(int(pid)), "the server ends", 5)


def test_a_function_that_is_in_no_file_runs_inline():
    made = {}
    exec("def add(x: int) -> int:\n  seen.append(x)\n  return x + 1\nseen = []", made)
    with nereid.serve(made["add"]) as server:
        result = Client("http", server.http_address).infer("add", {"x": np.array([1])})
        assert result.as_numpy("OUTPUT0").tolist() == [2]
        assert made["seen"] == [1]
    with pytest.raises(ValueError, match="is in no file that another process could import"):
        nereid.serve(made["add"], inline=False)


def test_many_inline_functions_load_at_once():
    made = {}
    for number in range(12):
        exec(f"def add{number}(x: int) -> int:\n  return x + {number}", made)
    every = [nereid.model(made[f"add{number}"], instances=4) for number in range(12)]
    with nereid.serve(*every, model_load_thread_count=12) as server:
        client = Client("http", server.http_address)
        for number in range(12):
            assert client.infer(f"add{number}", {"x": np.array([1])}).as_numpy("OUTPUT0").tolist() == [1 + number]


def test_a_held_lock_delays_inline_functions_only(tmp_path):
    with nereid.serve(functions.hold, inline=True, model_repository=[os.path.join(ROOT, "examples/models")]) as server:
        client = subprocess.Popen([sys.executable, "-c", textwrap.dedent("""
            import sys, time, numpy as np, tritonclient.http as t
            client = t.InferenceServerClient(sys.argv[1])
            a = t.InferInput("INPUT0", [1, 16], "INT32"); a.set_data_from_numpy(np.zeros((1, 16), np.int32))
            b = t.InferInput("INPUT1", [1, 16], "INT32"); b.set_data_from_numpy(np.zeros((1, 16), np.int32))
            print("begun", flush=True)
            worst, end = 0, time.monotonic() + 1.5
            while time.monotonic() < end:
                start = time.monotonic(); client.infer("simple", [a, b]); worst = max(worst, time.monotonic() - start)
            print(worst)
        """), server.http_address], stdout=subprocess.PIPE, text=True)
        assert client.stdout.readline() == "begun\n"
        Client("http", server.http_address).infer("hold", {"seconds": np.array([1.0])})
        assert float(client.communicate()[0]) < 0.5


def test_a_fork_of_the_program_leaves_its_functions_serving():
    made = {}
    exec("def add(x: int) -> int:\n  return x + 1", made)
    with nereid.serve(made["add"]) as server:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert Client("http", server.http_address).infer("add", {"x": np.array([1])}).as_numpy("OUTPUT0").tolist() == [2]


def command(*words, cwd):
    return subprocess.Popen([sys.executable, "-m", "nereid", "serve", *words], cwd=cwd, env={**os.environ, **VARIABLES},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until_served(url):
    def is_ready():
        try:
            return urllib.request.urlopen(f"{url}/v2/health/ready", timeout=5).status == 200
        except OSError:
            return False

    assert until(is_ready, 30)


def test_the_command_serves_the_functions_of_a_file(tmp_path):
    (tmp_path / "app.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "helpers.py").write_text("FACTOR = 3\n")
    (tmp_path / "more.py").write_text("from helpers import FACTOR\ndef triple(x: int) -> int:\n    return x * FACTOR\n")
    http, grpc, metrics = free_ports(3)
    flags = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1", "--exit-grace-secs=0"]
    process = command("app.py", "more:triple", *flags, cwd=tmp_path)
    try:
        until_served(f"http://127.0.0.1:{http}")
        assert post(f"http://127.0.0.1:{http}")["data"] == [2.0, 4.0]
        result = Client("http", f"127.0.0.1:{http}").infer("triple", {"x": np.array([2])})
        assert result.as_numpy("OUTPUT0").tolist() == [6]
    finally:
        process.terminate()
    assert process.wait(20) == 0


@pytest.mark.parametrize("words, code, text", [
    ([], 2, "usage: nereid serve FILE.py[:FUNCTION]"),
    (["none.py"], 1, "there is no file none.py; files there: app.py, bad.py, nested.py, plain.py\n"),
    (["ap.py:double"], 1, "there is no file ap.py; files there: app.py, bad.py, nested.py, plain.py. Did you mean app.py?"),
    (["none/app.py"], 1, "there is no file none/app.py; there is no directory none"),
    (["app.py:duoble"], 1, "app.py has no 'duoble'; it defines: double. Did you mean app.py:double?"),
    (["nested.py:f"], 1, "'f' is defined inside of another function"),
    (["none"], 1, "there is no module 'none'"),
    (["app.py:half"], 1, "app.py has no 'half'; it defines: double"),
    (["app.py:np"], 1, "a model is a function or a class"),
    (["bad.py:f"], 1, "ZeroDivisionError"),
    (["plain.py"], 1, "plain.py has no function with @nereid.model: name one, plain.py:FUNCTION"),
])
def test_the_command_names_what_is_wrong(words, code, text, tmp_path):
    (tmp_path / "app.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "bad.py").write_text("1 / 0\n")
    (tmp_path / "plain.py").write_text("def f(x: int) -> int: return x\n")
    (tmp_path / "nested.py").write_text("def made():\n    def f(x: int) -> int: return x\n    return f\nf = made()\n")
    process = command(*words, cwd=tmp_path)
    output = process.communicate(timeout=30)[0]
    assert text in output and process.returncode == code, output


def test_a_saved_file_is_served_with_dev(tmp_path):
    file = tmp_path / "app.py"
    file.write_text("def f(x: int) -> int:\n    return x + 1\n")
    http, grpc, metrics = free_ports(3)
    process = command("app.py:f", "--dev", f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}", cwd=tmp_path)
    try:
        until_served(f"http://127.0.0.1:{http}")
        client = Client("http", f"127.0.0.1:{http}")
        assert client.infer("f", {"x": np.array([1])}).as_numpy("OUTPUT0").tolist() == [2]
        file.write_text("def f(x: int, y: int) -> float:\n    return x / y\n")

        def answers():
            try:
                result = client.infer("f", {"x": np.array([1]), "y": np.array([2])})
                return result.as_numpy("OUTPUT0").tolist() == [0.5]
            except InferenceServerException:
                return False

        assert until(answers, 20)
    finally:
        process.terminate()
    assert process.wait(20) == 0
