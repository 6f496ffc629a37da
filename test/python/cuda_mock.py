"""The stand-in of the CUDA driver, built from C, with two devices, and tritonclient's CUDA code over the stand-in of cuda.bindings."""
import contextlib
import importlib
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
MOCK = os.path.join(HERE, "../../crates/device/tests/mock/libcuda.c")


@contextlib.contextmanager
def two_devices(directory):
    """`(environment of a server and of this client, the client's module, directory of the devices' memory)`."""
    library = str(directory / "libcuda.so.1")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, MOCK, "-lpthread"], check=True)
    (directory / "memory").mkdir()
    environment = {"NEREID_LIBCUDA": library, "NEREID_MOCK_CUDA_DIR": str(directory / "memory"), "NEREID_MOCK_CUDA_DEVICES": "2"}
    patch = pytest.MonkeyPatch()
    for name, value in environment.items():
        patch.setenv(name, value)
    patch.syspath_prepend(os.path.join(HERE, "device"))
    try:
        yield environment, importlib.import_module("tritonclient.utils.cuda_shared_memory"), directory / "memory"
    finally:
        patch.undo()
        for name in [n for n in sys.modules if n == "cuda" or n.startswith("cuda.") or n.startswith("tritonclient.utils.cuda")]:
            del sys.modules[name]
