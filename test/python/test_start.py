"""The start of a server and what ends it: ports, certificates and keys before models load, output on a terminal, signals."""
import errno
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import termios
import time

import grpc
import pytest
import tritonclient.grpc as grpcclient

from interpreter import FLAG
from server import COMMAND, free_ports, waits_for

CONFIG = """
backend: "python"
input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] }]
"""
MODEL = """
import os, time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, args):
        {begin}
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())]) for r in requests]
"""


def add_model(repository, name, begin="pass"):
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(CONFIG)
    (repository / name / "1" / "model.py").write_text(MODEL.format(begin=begin))


@pytest.fixture
def gate(tmp_path):
    """A repository with a model that loads until the file `open` is there."""
    repository, opened = tmp_path / "models", tmp_path / "open"
    add_model(repository, "waits", f"while not os.path.exists({str(opened)!r}): time.sleep(0.01)")
    yield repository, opened
    opened.touch()


def refused(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def taken(port):
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def test_ports_are_bound_while_models_load_and_open_when_they_had_their_chance(gate, start):
    repository, opened = gate
    server = start(repository, FLAG, wait=False)
    server.logged("loading: waits:1")
    ports = [server.http_port, server.grpc_port, server.metrics_port]
    assert all(taken(port) for port in ports) and all(refused(port) for port in ports)
    # One that starts meanwhile ends at once, and knows all of its ports.
    flags = [f"--{name}-port={port}" for name, port in zip(("http", "grpc", "metrics"), ports)]
    second = start(repository, FLAG, *flags, wait=False)
    assert second.wait() == 1
    said = second.output()
    for service, port in zip(("HTTP", "GRPC", "Metrics"), ports):
        assert f"failed to start {service} service: Unavailable - Socket '127.0.0.1:{port}' already in use \"" in said
    assert "loading: waits:1" not in said
    assert refused(server.http_port)
    opened.touch()
    server.wait_live()
    server.logged("Started Metrics Service at")
    assert server.get("/metrics", port=server.metrics_port)
    assert server.stop() == 0


def test_all_ports_that_are_taken_are_named_at_once_with_their_flags_and_the_process(gate, start):
    holder = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    http, metrics = (one.getsockname()[1] for one in holder)
    server = start(gate[0], FLAG, f"--http-port={http}", f"--metrics-port={metrics}", wait=False)
    assert server.wait() == 1
    said = server.output()
    name = open("/proc/self/comm").read().strip()
    for flag, port in (("http", http), ("metrics", metrics)):
        assert f"--{flag}-port {port} is taken by process {os.getpid()} ({name}): end it" in said
    assert "--grpc-port" not in said
    for one in holder:
        one.close()


def test_a_unix_socket_of_a_server_that_loads_models_is_taken_and_goes_with_it(gate, start, tmp_path):
    place = tmp_path / "s"
    server = start(gate[0], FLAG, f"--http-address=unix:{place}", wait=False)
    server.logged("loading: waits:1")
    second = start(gate[0], FLAG, f"--http-address=unix:{place}", wait=False)
    assert second.wait() == 1 and f"Socket 'unix:{place}' already in use" in second.output()
    assert f"--http-address unix:{place} is taken by process {server.process.pid} (" in second.output()
    assert ", a Nereid server): end it, or choose another" in second.output()
    assert place.exists()
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert not place.exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")
def test_certificates_keys_and_logs_are_checked_before_models_load(gate, start, tmp_path):
    for name in ("one", "two"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.pem")], check=True, capture_output=True)  # fmt: skip
    (tmp_path / "keys.json").write_text("{")
    for flags, text in (
        (["--http-use-ssl=true", f"--http-server-cert={tmp_path}/one.pem", f"--http-server-key={tmp_path}/two.key"], "the key belongs to another certificate"),
        ([f"--keys-file={tmp_path}/keys.json"], "keys.json"),
        ([f"--access-log={tmp_path}/no/such/directory"], "--access-log"),
    ):
        server = start(gate[0], FLAG, *flags, wait=False)
        assert server.wait() == 1
        assert text in server.output() and "loading: waits:1" not in server.output(), server.output()


def test_with_listen_early_health_answers_while_models_load(gate, start):
    repository, opened = gate
    add_model(repository, "at_once")
    server = start(repository, FLAG, "--listen-early=true", "--model-control-mode=explicit", "--load-model=*")
    server.logged("Started Metrics Service at", "successfully loaded 'at_once'")
    health = grpc.insecure_channel(server.grpc).unary_stream("/grpc.health.v1.Health/Watch")(b"")
    client = grpcclient.InferenceServerClient(server.grpc)

    def answers():
        return [server.request("GET", f"/v2/health/{what}")[0] for what in ("live", "ready")], [client.is_server_live(), client.is_server_ready()]

    assert answers() == ([200, 400], [True, False])
    # NOT_SERVING, then SERVING.
    assert next(health) == b"\x08\x02"
    assert server.get("/metrics", port=server.metrics_port)
    assert server.request("GET", "/v2/models/waits")[0] in (400, 404)
    status, _, body = server.request("POST", "/v2/repository/models/at_once/load", b"{}")
    assert (status, json.loads(body)) == (503, {"error": "Server not ready"})
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "INT32", "data": [7]}]}).encode()
    assert server.request("POST", "/v2/models/at_once/infer", body)[0] == 200
    opened.touch()
    assert next(health) == b"\x08\x01"
    assert answers() == ([200, 200], [True, True])
    assert server.output().count("Started HTTPService at") == 1
    client.close()
    assert server.stop() == 0


def test_a_load_that_takes_long_says_so_every_ten_seconds_and_how_long_it_took(start, tmp_path):
    add_model(tmp_path / "models", "late", "time.sleep(10.3)")
    server = start(tmp_path / "models", FLAG)
    said = server.output()
    assert '"still loading late, 10 s"' in said and re.search(r'"loaded late in \d\d\.\d s"', said)
    assert server.stop() == 0


class Terminal:
    """A server on a terminal of its own."""

    def __init__(self, repository, *flags, columns=80, env=None, command=None):
        self.ports = free_ports(3)
        names = ("http", "grpc", "metrics")
        listen = [f"--{name}-port={port}" for name, port in zip(names, self.ports)] + ["--http-address=127.0.0.1", "--grpc-address=127.0.0.1"]
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
            command = [*(command or COMMAND), f"--model-repository={repository}", *listen, *flags]
            os.execvpe(command[0], command, {**os.environ, "TERM": "xterm", **(env or {})})

    def read(self, seconds=0.05):
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            self.text += os.read(self.fd, 1 << 16).decode(errors="replace")
        except OSError:
            return False
        return True

    def until(self, text, seconds=60):
        waits_for(lambda: self.read() and text in self.text or text in self.text, f"{text} in:\n{self.text}", seconds)
        return self

    def key(self, key):
        os.write(self.fd, key)

    def ended(self):
        """(exit status, seconds until then)"""
        begin = time.monotonic()
        while True:
            self.read(0.005)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.read():
                    pass
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status), time.monotonic() - begin
            assert time.monotonic() - begin < 30, self.text

    def lines(self):
        """Returns the final text of the screen, without colours: the live lines of loads are erased."""
        screen = []
        for part in re.split(r"(\x1b\[\d+A|\n)", self.text.replace("\r", "")):
            if up := re.fullmatch(r"\x1b\[(\d+)A", part):
                screen = [*screen[: len(screen) - 1 - int(up[1])], ""]
            elif part == "\n":
                screen.append("")
            else:
                screen = screen or [""]
                screen[-1] += re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", part)
        return screen


# A terminal of docker run -t has 0 columns at first.
@pytest.mark.parametrize("columns", [0, 80, 130])
def test_terminal_output_fits_its_width_and_ends_with_a_summary_and_a_command(repositories, columns):
    server = Terminal(repositories / "small", columns=columns).until("curl ")
    server.until("\n", 5)
    http, grpc_port, metrics = server.ports
    lines = [line for line in server.lines() if line]
    # Paths stay whole, to be copied, and move the end of their line.
    wide = [line for line in lines if len(line) > (columns or 80) and " " in line.strip()]
    assert [line for line in wide if not re.fullmatch(r"\| \w+ +\| /\S+ +\|", line)] == []
    assert "\x1b[32mREADY\x1b[0m" in server.text
    at = next(i for i, line in enumerate(lines) if line.startswith("Nereid "))
    assert re.fullmatch(r"Nereid \d+\.\d+\.\d+ \(Triton 2\.\d+ API\): 2 of 2 models ready in \d+\.\d s", lines[at])
    assert lines[at + 1 :][:3] == [f"  http     http://127.0.0.1:{http}", f"  grpc     127.0.0.1:{grpc_port}", f"  metrics  http://127.0.0.1:{metrics}/metrics"]
    answer = subprocess.run(["sh", "-c", f"{lines[at + 4]} -sf"], capture_output=True, timeout=20)
    assert answer.returncode == 0 and json.loads(answer.stdout)["name"] == "id_string"
    # What all backends have in common stands there once.
    assert sum("min-compute-capability" in line for line in lines) == 1
    server.key(b"\x03")
    assert server.ended()[0] == 0


def test_the_environment_turns_colours_off_and_a_dumb_terminal_works_like_a_pipe(repositories):
    server = Terminal(repositories / "small", env={"NO_COLOR": "1"}).until("curl ")
    assert "\x1b[3" not in server.text
    server.key(b"\x03")
    server.ended()
    server = Terminal(repositories / "small", env={"TERM": "dumb"}).until("Started Metrics Service at")
    assert "\x1b" not in server.text and "Nereid " not in server.text
    assert server.text.count("min-compute-capability") > 5
    server.key(b"\x03")
    server.ended()


def test_a_pipe_gets_no_colours_and_no_summary(repositories, start):
    server = start(repositories / "small")
    said = server.logged("Started Metrics Service at")
    assert "\x1b" not in said and "Nereid " not in said and "curl" not in said
    assert server.stop() == 0


def test_a_failed_model_is_a_line_with_its_reason_and_how_to_serve_the_others(start, tmp_path):
    for name in ("a", "b", "c"):
        add_model(tmp_path / "models", name)
    add_model(tmp_path / "models", "bad", "raise ValueError('no such tokenizer')")
    server = start(tmp_path / "models", FLAG, wait=False)
    assert server.wait() == 1
    said = server.output().splitlines()
    assert said[-1] == "error: creating server: Internal - failed to load all models"
    assert re.search(r"\"model 'bad': .*no such tokenizer.*; 1 of 4 models failed to load; --exit-on-error=false serves the other 3\"", said[-2])
    assert sum("no such tokenizer" in line and line.startswith("E") and "model 'bad'" in line for line in said) == 1
    # A log in a file does not hide it.
    server = start(tmp_path / "models", FLAG, f"--log-file={tmp_path}/log", wait=False)
    assert server.wait() == 1
    assert re.search(r"^error: model 'bad': .*--exit-on-error=false serves the other 3\nerror: creating server", server.output(), re.M)


IDLE_SECONDS = 0.2


@pytest.mark.parametrize("connected", ["never", "before", "now"])
def test_ctrl_c_ends_an_idle_server_at_once(repositories, tmp_path, connected):
    add_model(tmp_path / "models", "one")
    shutil.copytree(repositories / "small" / "simple", tmp_path / "models" / "simple")
    best = []
    # What else runs on the machine only ever adds to it.
    for _ in range(5):
        server = Terminal(tmp_path / "models", FLAG).until("curl ")
        client = None
        if connected != "never":
            client = socket.create_connection(("127.0.0.1", server.ports[0]))
            client.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
            if connected == "before":
                client.close()
        server.key(b"\x03")
        code, seconds = server.ended()
        assert code == 0
        best.append(seconds)
        if min(best) < IDLE_SECONDS:
            return
    raise AssertionError(f"{best} s: {server.text}")


def test_sigterm_has_its_grace_only_if_a_client_is_or_was_connected(repositories):
    server = Terminal(repositories / "small", "--exit-grace-secs=1").until("curl ")
    client = socket.create_connection(("127.0.0.1", server.ports[0]))
    client.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.recv(100)
    os.kill(server.pid, signal.SIGTERM)
    code, seconds = server.ended()
    assert code == 0 and seconds > 0.9
    client.close()
    server = Terminal(repositories / "small", "--exit-grace-secs=20").until("curl ")
    os.kill(server.pid, signal.SIGTERM)
    code, seconds = server.ended()
    assert code == 0 and seconds < 10


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not here")
def test_ctrl_c_that_npm_passes_on_as_well_is_one_key(repositories, tmp_path):
    (tmp_path / "package.json").write_text(json.dumps({"scripts": {"serve": " ".join(COMMAND)}}))
    server = Terminal(repositories / "small", command=["npm", "--prefix", str(tmp_path), "run", "serve", "--"]).until("curl ", 120)
    server.key(b"\x03")
    server.until("Found 0 live models", 30)
    server.ended()
    assert "received again" not in server.text


def test_a_terminal_that_is_closed_ends_the_server_with_a_drain(repositories, tmp_path):
    server = Terminal(repositories / "small", f"--log-file={tmp_path}/log")
    waits_for(lambda: not refused(server.ports[0]), "the port")
    os.close(server.fd)
    ended = []

    def has_ended():
        pid, status = os.waitpid(server.pid, os.WNOHANG)
        ended.extend([status] if pid else [])
        return ended

    waits_for(has_ended, "the end")
    assert os.waitstatus_to_exitcode(ended[0]) == 0
    assert "Waiting for in-flight requests to complete." in (tmp_path / "log").read_text()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")
def test_sighup_reads_keys_certificates_and_logs_again(repositories, start, tmp_path):
    log, access, audit, keys = (tmp_path / name for name in ("server.log", "access.log", "audit.log", "keys.json"))
    certificate, key = tmp_path / "c.pem", tmp_path / "c.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)  # fmt: skip
    keys.write_text(json.dumps({"keys": []}))
    server = start(repositories / "small", f"--log-file={log}", f"--access-log={access}", f"--audit-log={audit}", f"--keys-file={keys}",
                   "--grpc-use-ssl=true", f"--grpc-server-cert={certificate}", f"--grpc-server-key={key}", "--log-verbose=1")  # fmt: skip
    waits_for(lambda: access.exists() and access.read_text(), "a line of the access log")
    waits_for(lambda: "Started Metrics Service" in log.read_text(), "the start")
    moved = {}
    for one in (log, access, audit):
        moved[one] = one.with_suffix(".1")
        one.rename(moved[one])
    server.signal(signal.SIGHUP)
    waits_for(lambda: log.exists() and "Signal (1) received" in log.read_text(), "the line of the signal")
    for one in (access, audit):
        waits_for(one.exists, f"{one} once more")
    before = {one: moved[one].read_bytes() for one in moved}
    line = next(line for line in log.read_text().splitlines() if "Signal (1)" in line)
    assert all(str(one) in line for one in (log, access, audit, keys, certificate)), line
    assert server.request("GET", "/v2/health/ready")[0] == 200
    waits_for(lambda: "health/ready" in access.read_text(), "the request in the new file")
    assert {one: moved[one].read_bytes() for one in moved} == before
    # What cannot be used is told, and changes nothing.
    keys.write_text("{")
    certificate.write_text("no certificate")
    server.signal(signal.SIGHUP)
    waits_for(lambda: log.read_text().count("Signal (1) received") == 2, "the second line")
    said = log.read_text()
    assert "the keys stay as they are" in said and "the current certificate stays in use" in said
    again = [line for line in said.splitlines() if "Signal (1)" in line][1]
    assert str(keys) not in again and str(certificate) not in again and str(access) in again
    assert server.request("GET", "/v2/health/ready")[0] == 200
    assert server.stop() == 0


def test_sighup_while_models_load_ends_nothing(gate, start):
    repository, opened = gate
    server = start(repository, FLAG, wait=False)
    server.logged("loading: waits:1")
    server.signal(signal.SIGHUP)
    server.logged("Signal (1) received")
    opened.touch()
    server.wait_live()
    assert server.stop() == 0
