"""Fixtures: the repositories, one long-lived server for most tests, and a factory for tests that need their own."""
import os
import subprocess

import pytest

import steps as step_models
from clients import KINDS, connect
from cuda_mock import two_devices
from memory import named_memory
from server import NODE, ROOT, Server


def pytest_collection_modifyitems(items):
    """Skips what only `npm test -- --nightly` runs."""
    if os.environ.get("NEREID_NIGHTLY"):
        return
    for item in items:
        for mark in item.iter_markers("nightly"):
            if not mark.args or item.callspec.id.startswith(mark.args):
                item.add_marker(pytest.mark.skip(reason="runs with --nightly"))


@pytest.fixture(scope="session", autouse=True)
def no_server_is_left(request):
    """Ends the servers of tests that failed before they stopped theirs; a test that passed must have stopped it."""
    yield
    left = [one for one in Server.started if one.process.poll() is None]
    for one in left:
        print(f"a test left this server running (pid {one.process.pid}): {one.command}")
        one.stop()
    assert not left or request.session.testsfailed > 0, [one.command for one in left]


@pytest.fixture(scope="session")
def repositories(tmp_path_factory):
    """Directory with the repositories `main`, `small` and `broken`."""
    out = tmp_path_factory.mktemp("models")
    subprocess.run([NODE, os.path.join(ROOT, "test/models/generate.mjs"), str(out)], check=True)
    return out


@pytest.fixture(scope="session")
def server(repositories, tmp_path_factory):
    """The server that tests share. It must be as healthy after the last test as before the first."""
    before = named_memory()
    one = Server(
        repositories / "main",
        "--allow-client-shm=true",
        "--metrics-config=histogram_latencies=true",
        log=tmp_path_factory.mktemp("log") / "server.log",
    )
    yield one
    # A server that a test killed would otherwise only show as errors in whatever ran next.
    assert one.process.poll() is None, f"the shared server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()
    left = named_memory() - before
    assert not left, f"left behind in /dev/shm: {sorted(left)}"


@pytest.fixture(scope="session")
def steps(tmp_path_factory):
    """A server of models with sequences, ensembles and many responses."""
    repository = step_models.write(tmp_path_factory.mktemp("steps"))
    one = Server(repository, log=tmp_path_factory.mktemp("log") / "steps.log")
    yield one
    assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()


@pytest.fixture
def start(tmp_path):
    """Starts a private server: `start(repository, *flags)`. Ended after the test."""
    running = []

    def go(repository, *flags, **options):
        one = Server(repository, *flags, log=tmp_path / f"server{len(running)}.log", **options)
        running.append(one)
        return one

    yield go
    for one in running:
        one.stop()


@pytest.fixture(params=KINDS)
def client(request, server):
    """Each of tritonclient's four clients in turn, behind one interface."""
    one = connect(request.param, server)
    yield one
    one.close()


@pytest.fixture(params=["http", "grpc"])
def transport(request, server):
    """The two synchronous clients: enough where only the transport makes a difference."""
    one = connect(request.param, server)
    yield one
    one.close()


@pytest.fixture(scope="module")
def mock(tmp_path_factory):
    """A CUDA driver without a GPU: the environment of a server and of this client, the client's module, and the directory of the devices' memory."""
    with two_devices(tmp_path_factory.mktemp("cuda")) as made:
        yield made


@pytest.fixture(scope="module")
def driver(mock):
    """What a server over that driver has in its environment."""
    return mock[0]
