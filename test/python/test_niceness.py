"""What serves requests has the niceness that the server was started with, whatever thread made it; only what may wait is nicer."""
import ctypes
import os
import signal
from pathlib import Path

import pytest

from crashes import Asker, descendants, write
from interpreter import python_server
from server import until, waits_for

CAP_SYS_NICE = 23
PR_CAPBSET_DROP = 24
# Nicer than the tests are.
STARTED_WITH = os.nice(0) + 3
# Names of threads, as long as the kernel keeps them: they load and unload models, or read and write large bodies (frontend::offload says why those are nicer).
MAY_WAIT = {"nereid-lifecycl", "nereid-unload", "nereid-offload"}

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no /proc on this system")


def as_an_ordinary_user():
    """Without the right to be less nice again, also where the tests run as root."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0)
    os.nice(3)


def nicer(pid):
    """Threads of a process that do not have the niceness of the start: {name: niceness}."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            niceness = int((task / "stat").read_text().rsplit(")", 1)[1].split()[16])
        except OSError:
            continue
        if niceness != STARTED_WITH:
            found[name] = niceness
    return found


def serving(server):
    """Threads of the server and of its processes that serve and are nicer than they should be."""
    pids = {server.process.pid, *descendants(server.process.pid)}
    return {(pid, name): niceness for pid in pids for name, niceness in nicer(pid).items() if name not in MAY_WAIT}


def test_what_a_load_starts_serves_with_the_niceness_of_the_server(tmp_path, repositories):
    models = write(tmp_path / "models")
    onnx = models / "threads"
    (onnx / "1").mkdir(parents=True)
    (onnx / "1/model.onnx").write_bytes((repositories / "main/simple/1/model.onnx").read_bytes())
    (onnx / "config.pbtxt").write_text('parameters { key: "intra_op_thread_count" value { string_value: "3" } }\n')
    flags = ["--model-control-mode=explicit", "--load-model=victim"]
    server = python_server(models, *flags, log=tmp_path / "server.log", prepare=as_an_ordinary_user)
    try:
        asker = Asker(server)
        assert until(lambda: asker.is_ready()), server.tail()
        threads = os.listdir(f"/proc/{server.process.pid}/task")
        for model in ["two", "threads"]:
            asker.control("load", model)
        assert len(os.listdir(f"/proc/{server.process.pid}/task")) >= len(threads) + 2, "the session has threads of its own"
        pid = int(asker.run("pass")[1])
        asker.run("pass", "two")
        assert serving(server) == {}
        # One that is started again, and one that is loaded again.
        os.kill(pid, signal.SIGKILL)
        waits_for(lambda: asker.run("pass")[0] == 200, "the process is back")
        asker.control("load", "two")
        assert asker.run("pass", "two")[0] == 200
        assert len(descendants(server.process.pid)) >= 3
        assert serving(server) == {}
    finally:
        assert server.stop() == 0, server.tail()
