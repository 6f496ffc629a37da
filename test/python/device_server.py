"""Fixtures of modules whose `repository` has Python models: a server of it over a libcuda.so.1 without a GPU, and a client. A module imports `server` and `caller`."""
import pytest

from clients import connect
from interpreter import AS_CONFIGURED, python_server


@pytest.fixture(scope="module")
def server(driver, repository, tmp_path_factory):
    """`driver` is what the server's environment says of the driver: the stand-in, unless a module puts a library of its own in front."""
    one = python_server(repository, AS_CONFIGURED, "--allow-client-shm=true", log=tmp_path_factory.mktemp("log") / "server.log", env=driver)
    yield one
    assert one.stop() == 0, one.tail()


@pytest.fixture
def caller(server):
    one = connect("grpc", server)
    yield one
    one.call("unregister_cuda_shared_memory")
    one.close()
