"""
What works at all on this machine, before anything of the server is asked: `python probe.py` prints one JSON object.

Two processes and the driver's own library by ctypes, so that it needs nothing but Python and says the same on machines without cuda.bindings. Each
entry is null where it works, else the reason: what a row of `npm run test:gpu` that needs it is reported with.
"""
import ctypes
import json
import mmap
import os
import subprocess
import sys

BYTES = 1 << 20
SUM = sum(range(256)) * (BYTES // 256)


class Refused(Exception):
    """What a library answered, in its words."""


def library(variable, *names):
    """Opens the first library there is. A variable names one alone, as it does for the server."""
    why = None
    for name in [os.environ[variable]] if os.environ.get(variable) else names:
        try:
            return ctypes.CDLL(name)
        except OSError as e:
            why = why or e
    raise Refused(str(why))


class Cuda:
    """The calls that are made, each of which raises what the driver says."""

    def __init__(self):
        self.library = library("NEREID_LIBCUDA", "libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")
        self.call("cuInit", 0)

    def call(self, name, *arguments):
        try:
            function = getattr(self.library, name)
        except AttributeError:
            raise Refused(f"the CUDA driver has no {name}") from None
        code = function(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(code, ctypes.byref(text))
            raise Refused(f"{name} failed with {(text.value or b'error').decode()} ({code})")

    def number(self, name, *arguments):
        found = ctypes.c_int()
        self.call(name, ctypes.byref(found), *arguments)
        return found.value

    def enter(self, device):
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.number("cuDeviceGet", device))
        self.call("cuCtxSetCurrent", context)


def devices(cuda):
    """Name, compute capability and bytes of each; what an older library does not tell stays out."""
    found = []
    for device in range(cuda.number("cuDeviceGetCount")):
        name, total = ctypes.create_string_buffer(256), ctypes.c_size_t()
        cuda.call("cuDeviceGetName", name, 256, device)
        cuda.call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
        try:
            capability = ".".join(str(cuda.number("cuDeviceGetAttribute", which, device)) for which in (75, 76))
        except Refused:
            capability = None
        found.append({"name": name.value.decode(), "bytes": total.value, "capability": capability})
    return found


def share(cuda):
    """This process fills memory of a device, and another one opens it by its handle and reads it."""
    cuda.enter(0)
    address, handle = ctypes.c_uint64(), ctypes.create_string_buffer(64)
    cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(BYTES))
    cuda.call("cuMemcpyHtoD_v2", address, bytes(range(256)) * (BYTES // 256), ctypes.c_size_t(BYTES))
    cuda.call("cuCtxSynchronize")
    cuda.call("cuIpcGetMemHandle", handle, address)
    other = subprocess.run([sys.executable, __file__, handle.raw.hex()], capture_output=True, text=True, timeout=120)
    cuda.call("cuMemFree_v2", address)
    if other.returncode != 0 or other.stdout.strip() != str(SUM):
        raise Refused(f"another process could not read it: {(other.stdout + other.stderr).strip()[-300:]}")


def read_handle(handle):
    class Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 64)]

    cuda = Cuda()
    cuda.enter(0)
    address, found = ctypes.c_uint64(), ctypes.create_string_buffer(BYTES)
    cuda.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), Handle.from_buffer_copy(bytes.fromhex(handle)), 1)
    cuda.call("cuMemcpyDtoH_v2", found, address, ctypes.c_size_t(BYTES))
    cuda.call("cuIpcCloseMemHandle", address)
    print(sum(found.raw))


def lock_pages(cuda):
    """Memory of /dev/shm, which the driver is asked to lock."""
    path = f"/dev/shm/nereid-probe-{os.getpid()}"
    with open(path, "w+b") as file:
        os.unlink(path)
        file.truncate(BYTES)
        memory = mmap.mmap(file.fileno(), BYTES)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    cuda.enter(0)
    cuda.call("cuMemHostRegister_v2", ctypes.c_void_p(at), ctypes.c_size_t(BYTES), 1)
    cuda.call("cuMemHostUnregister", ctypes.c_void_p(at))


def nvml():
    found = library("NEREID_LIBNVML", "libnvidia-ml.so.1")
    count = ctypes.c_uint()
    for name, arguments in (("nvmlInit_v2", ()), ("nvmlDeviceGetCount_v2", (ctypes.byref(count),))):
        code = getattr(found, name)(*arguments)
        if code != 0:
            raise Refused(f"{name} failed with {code}")
    if count.value == 0:
        raise Refused("NVML finds no device")


def reason(work):
    try:
        work()
    except (Refused, OSError, AttributeError, subprocess.SubprocessError) as e:
        return f"{e}"
    return None


def probe():
    """`{driver, devices, ipc, host-register, nvml}`; `devices` is a list, the others are reasons."""
    try:
        cuda = Cuda()
        version, found = cuda.number("cuDriverGetVersion"), devices(cuda)
    except Refused as e:
        none = f"no GPU: {e}"
        return {"driver": none, "version": None, "devices": [], "ipc": none, "host-register": none, "nvml": reason(nvml)}
    return {
        "driver": None if found else "no GPU: the CUDA driver finds no device",
        "version": f"{version // 1000}.{version % 1000 // 10}",
        "devices": found,
        "ipc": reason(lambda: share(cuda)),
        "host-register": reason(lambda: lock_pages(cuda)),
        "nvml": reason(nvml),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        try:
            read_handle(sys.argv[1])
        except Refused as e:
            sys.exit(str(e))
    else:
        print(json.dumps(probe()))
