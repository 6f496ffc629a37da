"""The mock library, and its calls as tuples of an error and results, which is how cuda-bindings gives them."""
import ctypes
import enum
import os

_library = ctypes.CDLL(os.environ["NEREID_LIBCUDA"])


class Error(enum.IntEnum):
    cudaSuccess = 0

    @classmethod
    def _missing_(cls, value):
        made = int.__new__(cls, value)
        made._name_, made._value_ = f"error {value}", value
        return made


def call(name, *arguments):
    return Error(getattr(_library, name)(*arguments))


def text(error):
    found = ctypes.c_char_p()
    _library.cuGetErrorString(int(error), ctypes.byref(found))
    return found.value or b"unknown"


def use(device):
    context = ctypes.c_void_p()
    return call("cuInit", 0) or call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device) or call("cuCtxSetCurrent", context)
