"""A server process on free loopback ports."""
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
NODE = shutil.which("node") or "node"
OTHER = os.environ.get("NEREID_TEST_SERVER")
"""How another server than this clone's is started, to run the tests against it: an emulated one, one in a container."""
COMMAND = shlex.split(OTHER) if OTHER else [NODE, os.path.join(ROOT, "dist/cli/main.js")]
START_SECONDS = 90 if OTHER else 30


def free_ports(count):
    """Ports nobody listens on. All are held at once, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def until(check, seconds=30):
    """Waits for a condition, and returns what it last said."""
    end = time.monotonic() + seconds
    while True:
        found = check()
        if found or time.monotonic() > end:
            return found
        time.sleep(0.01)


def waits_for(check, what, seconds=60):
    """Waits for a condition that must come; `what` is the text of the failure."""
    found = until(check, seconds)
    assert found, f"not within {seconds} s: {what}"
    return found


class Server:
    """Starts on construction and returns when `/v2/health/live` answers. `stop` sends SIGINT to the process started here: after SIGTERM a server waits for load balancers."""

    started = []
    """All of them. `conftest.py` ends those that a failed test left running."""

    def __init__(self, repository, *flags, log, wait=True, env=None, cwd=None, prepare=None, named=None):
        self.http_port, self.grpc_port, self.metrics_port = free_ports(3)
        self.log = str(log)
        command = COMMAND + [
            *(named or [f"--model-repository={repository}"]),
            "--http-address=127.0.0.1",
            "--grpc-address=127.0.0.1",
            "--metrics-address=127.0.0.1",
            f"--http-port={self.http_port}",
            f"--grpc-port={self.grpc_port}",
            f"--metrics-port={self.metrics_port}",
            *flags,
        ]
        self.command = shlex.join(command)
        self.started = time.monotonic()
        with open(self.log, "wb") as sink:
            self.process = subprocess.Popen(
                command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}, cwd=cwd, preexec_fn=prepare
            )
        Server.started.append(self)
        try:
            if wait:
                self.wait_live()
        except BaseException:
            self.stop()
            raise

    @property
    def http(self):
        return f"127.0.0.1:{self.http_port}"

    @property
    def grpc(self):
        return f"127.0.0.1:{self.grpc_port}"

    def wait_live(self):
        end = self.started + START_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.command}\n{self.tail()}")
            try:
                # Any answer will do: health may be restricted.
                self.get("/v2/health/live", check=False)
                return
            except OSError:
                # Each costs a millisecond of CPU that the server could have.
                time.sleep(0.02)
        raise RuntimeError(f"the server was not live after {START_SECONDS} s:\n{self.command}\n{self.tail()}")

    def tail(self, lines=40):
        with open(self.log, errors="replace") as f:
            return "".join(f.readlines()[-lines:])

    def output(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def logged(self, *texts, seconds=30):
        """The output, once these are in it: a server answers before the lines of its log are written."""
        for text in texts:
            assert until(lambda: text in self.output(), seconds), f"not in the log within {seconds} s: {text}\n{self.tail()}"
        return self.output()

    def request(self, method, path, body=None, headers=(), port=None, timeout=30):
        """(status, headers, body) over plain urllib: for what tritonclient does not send."""
        req = urllib.request.Request(
            f"http://127.0.0.1:{port or self.http_port}{path}", data=body, headers=dict(headers), method=method
        )
        try:
            with urllib.request.urlopen(req, timeout=timeout) as r:
                answer = r.status, r.headers, r.read()
        except urllib.error.HTTPError as e:
            answer = e.code, e.headers, e.read()
        names = [name.lower() for name in answer[1].keys()]
        assert len(names) == len(set(names)), f"{method} {path}: a header stands twice: {names}"
        return answer

    def get(self, path, check=True, **options):
        status, _, body = self.request("GET", path, **options)
        assert not check or status == 200, (status, body)
        return body

    def json(self, path):
        return json.loads(self.get(path))

    def metrics(self):
        """Series name with labels → value."""
        text = self.get("/metrics", port=self.metrics_port).decode()
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    def gauge(self, name, model):
        """Of all versions and instances of a model."""
        return sum(value for series, value in self.metrics().items() if series.startswith(name + "{") and f'model="{model}"' in series)

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, seconds=30):
        return self.process.wait(seconds)

    def stop(self):
        """Exit code of an orderly stop; -9 when it had to be killed."""
        if self.process.poll() is None:
            self.signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)
        return self.process.returncode
