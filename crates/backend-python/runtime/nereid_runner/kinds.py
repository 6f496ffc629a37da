"""Enums as in Triton's module, and the argument errors of its functions. That module is C++ behind pybind11: enums are
not `enum.Enum`, and arguments that no signature allows raise a TypeError that prints the signature. Models catch and
print both."""


class TritonModelException(Exception):
    """Errors of this module. Models raise and catch it."""


TritonModelException.__module__ = "c_python_backend_utils"


def public(kind):
    """Gives a class Triton's name in texts: `<class 'c_python_backend_utils.Tensor'>`."""
    kind.__module__ = "c_python_backend_utils"
    return kind


def _value(self):
    return self._value


def _name(self):
    return self._name


class Kind:

    __slots__ = ("_name", "_value")
    name = property(_name)
    value = property(_value)

    def __init__(self, value):
        self._value = int(value)
        self._name = next((n for n, v in type(self)._values.items() if v == self._value), "???")

    def __int__(self):
        return self._value

    __index__ = __int__

    def __eq__(self, other):
        if not isinstance(other, (int, type(self))):
            return False
        return self._value == (other._value if type(other) is type(self) else other)

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(self._value)

    def __str__(self):
        return f"{type(self).__name__}.{self._name}"

    def __repr__(self):
        return f"<{self}: {self._value}>"


def kind(name, **values):
    """A class whose members are `values`, as attributes and in `__members__`."""
    made = type(name, (Kind,), {"__slots__": (), "_values": values})
    made.__members__ = {n: made(v) for n, v in values.items()}
    for n, member in made.__members__.items():
        setattr(made, n, member)
    return public(made)


MemoryType = kind("MemoryType", TRITONSERVER_MEMORY_GPU=0, TRITONSERVER_MEMORY_CPU=1)
MetricKind = kind("MetricKind", COUNTER=0, GAUGE=1, HISTOGRAM=2)
LogLevel = kind("LogLevel", INFO=0, WARNING=1, ERROR=2, VERBOSE=3)
LogLevel.__qualname__ = "Logger.LogLevel"
ErrorCode = kind(
    "__ErrorCode", UNKNOWN=0, INTERNAL=1, NOT_FOUND=2, INVALID_ARG=3, UNAVAILABLE=4, UNSUPPORTED=5, ALREADY_EXISTS=6,
    CANCELLED=7, RESOURCE_EXHAUSTED=8,
)  # fmt: skip
# Triton's module lacks this code: models that iterate its members find those they know.
del ErrorCode.__members__["RESOURCE_EXHAUSTED"]


def _shown(value):
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def incompatible(what, signature, args=(), kwargs=None):
    """The TypeError for arguments that no signature allows. `what` is `Tensor.__init__` or a function's name."""
    shown = [_shown(a)[:200] for a in args]
    named = [f"{k}={_shown(v)[:200]}" for k, v in (kwargs or {}).items()]
    group = "constructor" if what.endswith("__init__") else "function"
    invoked = ", ".join(shown)
    if named:
        invoked += ("; " if invoked else "") + "kwargs: " + ", ".join(named)
    return TypeError(
        f"{what.rsplit('.', 1)[-1]}(): incompatible {group} arguments. The following argument types are supported:\n"
        f"    1. {signature}\n\nInvoked with: {invoked}"
    )


def text(value):
    """A text argument: str or UTF-8 bytes, as in Triton. Raises TypeError for other types and for lone surrogates."""
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise TypeError("not UTF-8") from None
        return value
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    raise TypeError("not a text")


def listed(value):
    """The elements of a sequence, as a new list; texts, sets and other iterables are no sequences. Raises TypeError."""
    if type(value) is list:
        return value[:]
    kind = type(value)
    if isinstance(value, (str, bytes, dict)) or not (hasattr(kind, "__getitem__") and hasattr(kind, "__len__")):
        raise TypeError("not a sequence")
    return list(value)


def whole(value, low, high):
    """An integer argument in a range; rejects floats and texts. Raises TypeError."""
    if isinstance(value, float):
        raise TypeError("not an integer")
    value = value.__index__() if not isinstance(value, int) and hasattr(value, "__index__") else value
    if not isinstance(value, int) or not low <= value <= high:
        raise TypeError("not an integer in range")
    return int(value)


UNCASTABLE = "to C++ type '?' (#define PYBIND11_DETAILED_ERROR_MESSAGES or compile in debug mode for details)"


def bind(what, names, defaults, signature, args, kwargs):
    """Arguments in the order of `names`. Those not in `defaults` are required. Raises as `incompatible`."""
    if len(args) > len(names):
        raise incompatible(what, signature, args, kwargs)
    got = dict(zip(names, args))
    for name, value in kwargs.items():
        if name in got or name not in names:
            raise incompatible(what, signature, args, kwargs)
        got[name] = value
    try:
        return [got[n] if n in got else defaults[n] for n in names]
    except KeyError:
        raise incompatible(what, signature, args, kwargs) from None


def parameters_text(parameters):
    """JSON text of parameters of a request or a response (B-PY-09, B-PY-14): str to bool, int or str."""
    import json

    if parameters is None:
        return "{}"
    if not isinstance(parameters, dict):
        raise TritonModelException(f"Expect N8pybind114dictE, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return json.dumps(parameters)
