"""Of the runtime interface: memory, handles, and streams on which everything is done at once."""
import ctypes
import enum

from ._mock import Error as cudaError_t
from ._mock import call, text, use

CUDA_IPC_HANDLE_SIZE = 64
_device = 0


class cudaDeviceAttr(enum.Enum):
    cudaDevAttrUnifiedAddressing = 41


class cudaMemcpyKind(enum.Enum):
    cudaMemcpyDefault = 4


class cudaIpcMemHandle_t:
    def __init__(self):
        self._bytes = ctypes.create_string_buffer(CUDA_IPC_HANDLE_SIZE)

    def getPtr(self):
        return ctypes.addressof(self._bytes)


def cudaGetErrorString(error):
    return cudaError_t(0), text(error)


def cudaGetDevice():
    return cudaError_t(0), _device


def cudaSetDevice(device):
    global _device
    _device = device
    return (use(device),)


def cudaDeviceGetAttribute(attribute, device):
    return cudaError_t(0), 1


def cudaMalloc(size):
    address = ctypes.c_uint64()
    return call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size)), address.value


def cudaFree(address):
    return (call("cuMemFree_v2", ctypes.c_uint64(address)),)


def cudaIpcGetMemHandle(address):
    handle = cudaIpcMemHandle_t()
    return call("cuIpcGetMemHandle", ctypes.c_void_p(handle.getPtr()), ctypes.c_uint64(address)), handle


def cudaMemcpyAsync(to, source, size, kind, stream):
    def host(memory):
        return ctypes.c_void_p(memory) if isinstance(memory, int) else ctypes.cast(memory, ctypes.c_void_p)

    if isinstance(to, int) and to >= 0xD00000000000:
        return (call("cuMemcpyHtoD_v2", ctypes.c_uint64(to), host(source), ctypes.c_size_t(size)),)
    return (call("cuMemcpyDtoH_v2", host(to), ctypes.c_uint64(source), ctypes.c_size_t(size)),)


def cudaStreamCreate():
    return cudaError_t(0), 1


def cudaStreamDestroy(stream):
    return (cudaError_t(0),)


def cudaStreamSynchronize(stream):
    return (cudaError_t(0),)
