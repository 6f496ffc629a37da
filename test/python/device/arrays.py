"""Arrays on a device for models of tests, in the place of PyTorch or CuPy: allocated by libcuda alone, exchanged by DLPack alone."""
import ctypes
import os

import numpy as np

_library = ctypes.CDLL(os.environ["NEREID_LIBCUDA"])
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_KINDS = {code: kind for kind, code in _CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
_disarm = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(("PyCapsule_SetDestructor", _api))

#: Blocks that were allocated and not freed; exports that were not deleted.
live, exports = {}, {}


_streams = {}


def _stream(device):
    """A stream that nothing waits for by itself."""
    if device not in _streams:
        _streams[device] = ctypes.c_void_p()
        _call("cuStreamCreateWithPriority", ctypes.byref(_streams[device]), 1, 0)
    return _streams[device]


def _call(name, *arguments):
    code = getattr(_library, name)(*arguments)
    if code:
        raise RuntimeError(f"{name} failed with {code}")


def _enter(device):
    context = ctypes.c_void_p()
    _call("cuInit", 0)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call("cuCtxSetCurrent", context)


class _Block:
    def __init__(self, size):
        address = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.address = address.value
        live[self.address] = size

    def __del__(self):
        live.pop(self.address, None)
        _call("cuMemFree_v2", ctypes.c_uint64(self.address))


@_DELETER
def _deleted(address):
    exports.pop(address, None)


class Array:
    def __init__(self, device, address, shape, dtype, owner):
        self.device, self.address, self.shape, self.dtype, self._owner = device, address, tuple(shape), np.dtype(dtype), owner
        self.size = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @staticmethod
    def of(array, device=0, later=False):
        """A copy of an array of the host. `later`: it is only begun, on a stream of its own, as frameworks begin their work."""
        _enter(device)
        array = np.ascontiguousarray(array)
        block = _Block(array.nbytes + 64)
        # Not at the beginning of its allocation, as most tensors of a framework.
        made = Array(device, block.address + 64, array.shape, array.dtype, (block, array))
        copy, more = ("cuMemcpyHtoDAsync_v2", [_stream(device)]) if later else ("cuMemcpyHtoD_v2", [])
        _call(copy, ctypes.c_uint64(made.address), array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes), *more)
        return made

    def capsule(self):
        """As `torch.utils.dlpack.to_dlpack` makes one: for whoever waits for the device."""
        return self.__dlpack__(stream=-1)

    @staticmethod
    def from_dlpack(value):
        kind, device = value.__dlpack_device__()
        assert int(kind) == 2, f"it is on a device of kind {kind}"
        capsule = value.__dlpack__(stream=1)
        managed = _Managed.from_address(_pointer(capsule, b"dltensor"))
        _rename(capsule, b"used_dltensor")
        _disarm(capsule, None)
        t = managed.tensor
        assert (t.device_type, t.device_id, t.lanes) == (2, device, 1)
        shape = [t.shape[i] for i in range(t.ndim)]
        expected = 1
        for i in reversed(range(t.ndim)):
            assert not t.strides or 0 in shape or shape[i] == 1 or t.strides[i] == expected, "C order"
            expected *= shape[i]
        return Array(device, t.data + t.byte_offset, shape, f"{_KINDS[t.code]}{t.bits // 8}", _Borrowed(managed))

    def get(self):
        """A copy on the host."""
        _enter(self.device)
        array = np.empty(self.shape, self.dtype)
        if self.size:
            _call("cuMemcpyDtoH_v2", array.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(self.address), ctypes.c_size_t(self.size))
        return array

    def set(self, array):
        _enter(self.device)
        array = np.ascontiguousarray(array, self.dtype)
        _call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(self.size))

    def __dlpack_device__(self):
        return 2, self.device

    def __dlpack__(self, stream=None):
        assert isinstance(stream, int), "a consumer of another process's kind names its stream"
        shape = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        managed = _Managed()
        managed.tensor = _Tensor(self.address, 2, self.device, len(self.shape), _CODES[self.dtype.kind], self.dtype.itemsize * 8, 1, shape, None, 0)
        managed.deleter = _deleted
        exports[ctypes.addressof(managed)] = (managed, shape, self)
        return _new(ctypes.addressof(managed), b"dltensor", None)


class _Borrowed:
    def __init__(self, managed):
        self.managed = managed

    def __del__(self):
        self.managed.deleter(ctypes.addressof(self.managed))
