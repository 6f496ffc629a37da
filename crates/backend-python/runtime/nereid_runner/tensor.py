"""`Tensor` (B-PY-04, B-PY-05, B-PY-06)."""
import numpy as np

from . import strings
from ._protocol import DATA_TYPE_BF16 as BF16, DATA_TYPE_BYTES as BYTES
from .kinds import TritonModelException, incompatible, public, text

#: numpy types of configurations' datatypes, in the order of their codes. numpy has none for BF16.
NUMPY_TYPES = {
    "TYPE_BOOL": np.bool_, "TYPE_UINT8": np.uint8, "TYPE_UINT16": np.uint16, "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64, "TYPE_INT8": np.int8, "TYPE_INT16": np.int16, "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64, "TYPE_FP16": np.float16, "TYPE_FP32": np.float32, "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}  # fmt: skip
#: Datatype code of each supported numpy type. Big-endian types differ and are not supported.
CODES = {np.dtype(kind): code for code, kind in enumerate(NUMPY_TYPES.values(), 1)}
#: numpy type of the elements of a code.
DTYPES = {code: dtype for dtype, code in CODES.items()}
DTYPES[BF16] = np.dtype("u2")

_NEW = "c_python_backend_utils.Tensor(arg0: str, arg1: numpy.ndarray)"
#: `kDLCUDA`.
_CUDA = 2
_STRINGS = "DLPack does not have support for string tensors."
_EMPTY_NAME = "Tensor name cannot be an empty string."
_BF16 = "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."


def _takes(count, given, what, signature):
    if len(given) != count:
        raise incompatible(what, signature, given)


@public
class Tensor:
    """A named array. Arrays that a model makes from it are kept; except strings, nothing is copied before it is sent.
    `_array`: the contiguous array that is sent, or a `device.Memory`; None for strings. `_numpy`: result of `as_numpy`;
    None until called for received strings and for foreign memory. `_raw`: strings in sent form."""

    __slots__ = ("_name", "_code", "_shape", "_array", "_numpy", "_raw", "__weakref__")

    def __init__(self, *args, **kwargs):
        if len(args) != 2 or kwargs:
            raise incompatible("Tensor.__init__", _NEW, args, kwargs)
        name, array = args
        if type(array) is not np.ndarray:
            if not isinstance(array, np.ndarray):
                raise incompatible("Tensor.__init__", _NEW, args)
            if isinstance(array, np.ma.MaskedArray):
                # As in Triton, where the mask would be lost.
                raise AttributeError("'numpy.ndarray' object has no attribute 'c_contiguous'")
        if type(name) is not str or not name.isascii():
            try:
                name = text(name)
            except TypeError:
                raise incompatible("Tensor.__init__", _NEW, args) from None
        if not name:
            raise TritonModelException(_EMPTY_NAME)
        self._name = name
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        self._shape = array.shape
        self._numpy = array
        code = CODES.get(array.dtype)
        if code is not None and code != BYTES:
            self._code = code
            self._array = array
            self._raw = None
            return
        if code is None and array.dtype.kind != "S":
            raise TritonModelException("NumPy dtype is not supported.")
        self._code = BYTES
        self._array = None
        self._raw = strings.raw_of(array)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("__init__")
        if own is not None:

            def checked(self, *args, **kwargs):
                own(self, *args, **kwargs)
                if not hasattr(self, "_name"):
                    raise TypeError(f"{cls.__name__}.__init__() must be called when overriding __init__")

            cls.__init__ = checked

    def name(self, *args):
        if args:
            raise incompatible("name", "(self: c_python_backend_utils.Tensor) -> str", args)
        return self._name

    def shape(self, *args):
        """Dims, as a new list of ints."""
        if args:
            raise incompatible("shape", "(self: c_python_backend_utils.Tensor) -> list[int]", args)
        return list(self._shape)

    def as_numpy(self, *args):
        """The array; the same object at each call."""
        array = self._numpy
        if array is not None and not args:
            return array
        if args:
            raise incompatible("as_numpy", "(self: c_python_backend_utils.Tensor) -> object", args)
        if self._code == BF16:
            raise TritonModelException(_BF16)
        if self._code == BYTES:
            array = strings.array_of(self._raw, _count(self._shape), self._shape)
        else:
            # Memory of another library: as in Triton the array is a copy, and the original is sent.
            array = self._array.copy()
        self._numpy = array
        return array

    def triton_dtype(self, *args):
        # Triton has this method, but no type for its result.
        raise TypeError(
            "Unregistered type : TRITONSERVER_datatype_enum\n"
            "Unable to convert function return value to a Python type! The signature was\n"
            "\t(self: c_python_backend_utils.Tensor) -> TRITONSERVER_datatype_enum"
        )

    def is_cpu(self, *args):
        if args:
            raise incompatible("is_cpu", "(self: c_python_backend_utils.Tensor) -> bool", args)
        return self._array is None or isinstance(self._array, np.ndarray)

    def to_dlpack(self, *args):
        if args:
            raise incompatible("to_dlpack", "(self: c_python_backend_utils.Tensor) -> capsule", args)
        return self.__dlpack__()

    def from_dlpack(*args):
        # Not a static method: through an instance it is a TypeError in Triton too.
        signature = "(arg0: str, arg1: object) -> c_python_backend_utils.Tensor"
        _takes(2, args, "from_dlpack", signature)
        name, value = args
        try:
            name = text(name)
        except TypeError:
            raise incompatible("from_dlpack", signature, args) from None
        from . import dlpack

        if isinstance(value, Tensor):
            if value._code == BYTES:
                raise TritonModelException(_STRINGS)
            array, is_bf16 = value._array, value._code == BF16
        else:
            array, is_bf16 = dlpack.imported(value)
        if not name:
            raise TritonModelException(_EMPTY_NAME)
        return of_memory(name, BF16 if is_bf16 else CODES[array.dtype], array)

    def __dlpack__(self, *args, **kwargs):
        if len(args) > 1 or kwargs.keys() - {"stream"} or args and kwargs:
            signature = "(self: c_python_backend_utils.Tensor, *, stream: object = None) -> capsule"
            raise incompatible("__dlpack__", signature, args, kwargs)
        if self._code == BYTES:
            raise TritonModelException(_STRINGS)
        from . import dlpack

        if not isinstance(self._array, np.ndarray):
            return dlpack.exported_memory(self._array, self._code == BF16)
        return dlpack.exported(self._array, self._code == BF16)

    def __dlpack_device__(self):
        return (1, 0) if self.is_cpu() else (_CUDA, self._array.device)

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle 'Tensor' object")


def _count(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def of_memory(name, code, array):
    tensor = Tensor.__new__(Tensor)
    tensor._name = name
    tensor._code = code
    tensor._shape = array.shape
    tensor._array = array
    tensor._numpy = None
    tensor._raw = None
    return tensor
