"""The stand-in of the CUDA driver, built from C, with two devices, and tritonclient's CUDA code over the stand-in of cuda.bindings."""
import contextlib
import importlib
import os
import subprocess
import sys

import numpy as np
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


class Region:
    """Memory of the client on a device, registered."""

    def __init__(self, mock, caller, name, size, device=0):
        self._cuda, self.caller, self.name, self.size = mock[1], caller, name, size
        self.handle = self._cuda.create_shared_memory_region(name, size, device)
        caller.call("register_cuda_shared_memory", name, self._cuda.get_raw_handle(self.handle), device, size)

    def set(self, values):
        self._cuda.set_shared_memory_region(self.handle, [values])
        return self

    def get(self, count, dtype=np.float32):
        return self._cuda.get_contents_as_numpy(self.handle, dtype, [count])

    def input(self, count, offset=0, datatype="FP32", width=4, name="IN"):
        one = self.caller.types.InferInput(name, [count], datatype)
        one.set_shared_memory(self.name, count * width, offset)
        return one

    def output(self, size=None, name="OUT"):
        one = self.caller.types.InferRequestedOutput(name)
        one.set_shared_memory(self.name, size or self.size)
        return one

    def drop(self):
        self.caller.call("unregister_cuda_shared_memory", self.name)
        self._cuda.destroy_shared_memory_region(self.handle)
        del self.handle
