"""DLPack without compiled code (B-PY-06): capsules are read and patched through ctypes; numpy exports memory. Exports
are numpy's own capsules, whose deleter is C: a ctypes callback would crash when the interpreter ends. BF16 is in uint16
arrays, booleans in uint8 arrays; the type in the capsule is changed."""
import ctypes

import numpy as np

from . import device
from ._protocol import DATA_TYPE_BF16 as BF16
from .kinds import TritonModelException

CPU, CUDA, CUDA_HOST = 1, 2, 3

_NAME, _USED = b"dltensor", b"used_dlpack"
NOT_SUPPORTED = (
    "Provided tensor is not supported. Tensor must be a DLPack capsule         "
    "or have `__dlpack__` and `__dlpack_device__` attributes"
)
_NO_GPU = "DLPack capsule passed pointer to memory allocated on GPU device,           when GPU is not available"
_NOT_CONTIGUOUS = (
    "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are supported."
)
# (code, bits) of DLDataType.
_TYPES = {
    (0, 8): "i1", (0, 16): "i2", (0, 32): "i4", (0, 64): "i8", (1, 8): "u1", (1, 16): "u2", (1, 32): "u4",
    (1, 64): "u8", (2, 16): "f2", (2, 32): "f4", (2, 64): "f8", (6, 8): "?", (4, 16): "u2",
}  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


def _function(name, result, *arguments):
    # A prototype of its own: those of `pythonapi` are shared, and other libraries declare other types.
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_set_name = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_set_destructor = _function("PyCapsule_SetDestructor", ctypes.c_int, ctypes.py_object, ctypes.c_void_p)


class _Owner:
    """Frees a capsule's tensor once its memory is unused."""

    def __init__(self, managed):
        self.managed = managed

    def __del__(self):
        if self.managed.deleter:
            self.managed.deleter(ctypes.addressof(self.managed))


def exported(array, is_bf16):
    """A capsule `dltensor` over the memory of a contiguous array."""
    lent = array
    if not array.flags.writeable:
        lent = array.copy()  # numpy lends no array that is read-only.
    if array.dtype == np.bool_:
        lent = lent.view(np.uint8)
    capsule = lent.__dlpack__()
    if is_bf16 or array.dtype == np.bool_:
        tensor = _Managed.from_address(_pointer(capsule, _NAME)).tensor
        tensor.code = 4 if is_bf16 else 6
    return capsule


def exported_memory(memory, is_bf16):
    """A capsule `dltensor` over memory of a device: numpy's own capsule with the same shape and another address. That
    array is never read: it has one element's memory, and keeps the device memory while it lives."""
    address = memory.address
    room = (ctypes.c_char * max(memory.dtype.itemsize, 1))()
    room.owner = memory
    dtype = np.dtype(np.uint8) if memory.dtype == np.bool_ else memory.dtype
    strides = (0, (0,) * len(memory.shape)) if memory.size else ()
    carrier = np.ndarray(memory.shape, dtype, room, *strides)
    capsule = carrier.__dlpack__()
    tensor = _Managed.from_address(_pointer(capsule, _NAME)).tensor
    tensor.data, tensor.byte_offset, tensor.device_type, tensor.device_id = address, 0, CUDA, memory.device
    stride = 1
    for at in reversed(range(tensor.ndim)):
        if tensor.strides:
            tensor.strides[at] = stride
        stride *= memory.shape[at]
    if is_bf16 or memory.dtype == np.bool_:
        tensor.code = 4 if is_bf16 else 6
    return capsule


def _capsule_on(device_id, value):
    """The capsule of an object on a device, after all writes to it have finished."""
    try:
        driver = device.driver()
    except device.Failed:
        raise TritonModelException(_NO_GPU) from None
    try:
        with driver.on(device_id):
            stream = driver.stream(device_id)
            capsule = value.__dlpack__(stream=stream.value)
            driver.call("cuStreamSynchronize", stream)
    except device.Failed as e:
        raise device.lose(e, f"a tensor on GPU {device_id} cannot be used: {e}") from None
    return capsule


def _finish(device_id):
    """Waits for all work on the device: a capsule does not name its stream, and another process cannot wait for it."""
    try:
        device.driver().finish(device_id)
    except device.Failed as e:
        raise device.lose(e, f"a tensor on GPU {device_id} cannot be used: {e}") from None


def imported(value):
    """`(array, is_bf16)` of a capsule or exporting object; a written `device.Memory` for memory of a device."""
    if type(value).__name__ == "PyCapsule":
        capsule = value
        if not _is_valid(capsule, _NAME):
            raise TritonModelException("The DLPack capsule was used before or is not a capsule: it cannot be used again.")
    elif hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        kind, number = value.__dlpack_device__()
        capsule = _capsule_on(int(number), value) if int(kind) == CUDA else value.__dlpack__(stream=None)
        if type(capsule).__name__ != "PyCapsule":
            raise TypeError(f"Object of type '{type(capsule).__name__}' is not an instance of 'capsule'")
        if not _is_valid(capsule, _NAME):
            raise TritonModelException(NOT_SUPPORTED)
    else:
        raise TritonModelException(NOT_SUPPORTED)
    managed = _Managed.from_address(_pointer(capsule, _NAME))
    dtype, shape, size, address, is_bf16 = _described(managed.tensor)
    if capsule is value and managed.tensor.device_type == CUDA:
        _finish(managed.tensor.device_id)
    # From here on the capsule is used; numpy's destructor would report a name it does not know.
    _set_name(capsule, _USED)
    _set_destructor(capsule, None)
    owner = _Owner(managed)
    if managed.tensor.device_type == CUDA:
        return device.Memory(managed.tensor.device_id, address, dtype, shape, size, owner), is_bf16
    kind = ctypes.c_char * size
    memory = kind.from_address(address) if size else kind()
    memory.owner = owner
    return np.ndarray(shape, dtype, memory), is_bf16


def _described(tensor):
    """Description of an array: `(dtype, shape, bytes, address, is_bf16)`."""
    if tensor.device_type == CUDA:
        try:
            device.driver()
        except device.Failed:
            raise TritonModelException(_NO_GPU) from None
    elif tensor.device_type not in (CPU, CUDA_HOST):
        raise TritonModelException(f"DLDevice type {tensor.device_type} is not support by Python backend.")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    name = _TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if name is None:
        raise TritonModelException("Dtype is invalid.")
    if tensor.strides and 0 not in shape:
        expected = 1
        for size, stride in zip(reversed(shape), reversed([tensor.strides[i] for i in range(tensor.ndim)])):
            if size != 1 and stride != expected:
                raise TritonModelException(_NOT_CONTIGUOUS)
            expected *= size
    dtype = np.dtype(name)
    count = 1
    for size in shape:
        count *= size
    return dtype, shape, count * dtype.itemsize, (tensor.data or 0) + tensor.byte_offset, tensor.code == 4
