"""`InferenceRequest`, `InferenceTrace` and `PreferredMemory` (B-PY-08, B-PY-09, B-PY-13)."""
from . import link
from ._protocol import ALL_OUTPUTS
from .kinds import (
    UNCASTABLE, MemoryType, TritonModelException, bind, incompatible, listed, parameters_text, public, text, whole
)
from .response import sender_of
from .tensor import Tensor

_UINT32, _UINT64, _INT64 = (1 << 32) - 1, (1 << 64) - 1, (1 << 63) - 1
RELEASE_ALL, RELEASE_RESCHEDULE = 1, 2


@public
class PreferredMemory:
    """Preferred location of a called model's outputs. Those on a GPU are copied to the host where that is needed."""

    __slots__ = ("_type", "_device")
    _SIGNATURE = (
        "c_python_backend_utils.PreferredMemory(preferred_memory_type: c_python_backend_utils.MemoryType, "
        "preferred_device_id: int = 0)"
    )

    def __init__(self, *args, **kwargs):
        what, names = "PreferredMemory.__init__", ("preferred_memory_type", "preferred_device_id")
        memory, device = bind(what, names, {"preferred_device_id": 0}, self._SIGNATURE, args, kwargs)
        try:
            device = whole(device, -_INT64 - 1, _INT64)
        except TypeError:
            memory = None
        if not isinstance(memory, MemoryType):
            raise incompatible(what, self._SIGNATURE, args, kwargs)
        self._type, self._device = memory, device


@public
class InferenceTrace:
    """The trace that a request belongs to; models can only pass it on."""

    __slots__ = ("_context", "_owner")

    def __init__(self, *args, **kwargs):
        raise TypeError("c_python_backend_utils.InferenceTrace: No constructor defined!")

    def get_context(self):
        """W3C trace context as JSON text, or None."""
        return self._context


def trace_of(context, owner):
    """`owner`: slot and generation of the request it belongs to, or None."""
    trace = InferenceTrace.__new__(InferenceTrace)
    trace._context = context or None
    trace._owner = owner
    return trace


_NAMES = (
    "request_id", "correlation_id", "inputs", "requested_output_names", "model_name", "model_version", "flags",
    "timeout", "preferred_memory", "trace", "parameters",
)  # fmt: skip
_MISSING = object()
_DEFAULTS = {
    "request_id": "", "correlation_id": 0, "model_version": -1, "flags": 0, "timeout": 0, "preferred_memory": _MISSING,
    "trace": _MISSING, "parameters": None,
}  # fmt: skip
_KNOWN = frozenset(_NAMES)
_REQUIRED = _KNOWN - _DEFAULTS.keys()
_SIGNATURE = (
    "c_python_backend_utils.InferenceRequest(request_id: str = '', correlation_id: object = 0, inputs: "
    "list[c_python_backend_utils.Tensor], requested_output_names: list[str], model_name: str, model_version: int = -1, "
    "flags: int = 0, timeout: int = 0, preferred_memory: c_python_backend_utils.PreferredMemory = <default>, "
    "trace: c_python_backend_utils.InferenceTrace = <empty>, parameters: object = None)"
)

#: Sets of requested outputs by their encoded names.
_wanted_names = {}
_WANTED_MAX, _WANTED_BYTES_MAX = 256, 4096


@public
class InferenceRequest:
    """A request: a received one, or one that a model makes for another model. Of a received one only the tensors are
    read at once. `_head` is its `RequestHead`, `_texts` the rest; other attributes are read from them on first use."""

    __slots__ = (
        "_head", "_texts", "_inputs", "_sender", "_release", "_id", "_correlation", "_flags", "_timeout", "_parameters",
        "_names", "_trace", "_model", "_version", "_in_host", "__weakref__",
    )  # fmt: skip

    def __init__(self, *args, **kwargs):
        what = "InferenceRequest.__init__"
        if args or not _REQUIRED <= kwargs.keys() <= _KNOWN:
            got = dict(zip(_NAMES, bind(what, _NAMES, _DEFAULTS, _SIGNATURE, args, kwargs)))
        else:
            # By keyword, as usual: a third of the time.
            got = {**_DEFAULTS, **kwargs}
        try:
            self._id = text(got["request_id"])
            self._model = text(got["model_name"])
            self._version = whole(got["model_version"], -_INT64 - 1, _INT64)
            self._flags = whole(got["flags"], 0, _UINT32)
            self._timeout = whole(got["timeout"], 0, _UINT64)
            self._inputs = listed(got["inputs"])
            preferred = got["preferred_memory"]
            if preferred is not _MISSING and not isinstance(preferred, PreferredMemory):
                raise TypeError
            self._in_host = preferred is not _MISSING and preferred._type is MemoryType.TRITONSERVER_MEMORY_CPU
            if got["trace"] is not _MISSING and not isinstance(got["trace"], InferenceTrace):
                raise TypeError
            if not all(t is None or isinstance(t, Tensor) for t in self._inputs):
                raise TypeError
            self._names = [text(n) for n in listed(got["requested_output_names"])]
        except TypeError:
            raise incompatible(what, _SIGNATURE, args, kwargs) from None
        self._head = None
        self._sender = None
        self._release = RELEASE_ALL
        self._trace = trace_of(None, None) if got["trace"] is _MISSING else got["trace"]
        self._parameters = parameters_text(got["parameters"])
        self._correlation = _correlation(got["correlation_id"])
        whom = f"for request with id '{self._id}' and model name '{self._model}' should not be empty."
        if None in self._inputs:
            raise TritonModelException(f"Input tensor {whom}")
        if "" in self._names:
            raise TritonModelException(f"Requested output name {whom}")

    def _read(self):
        """Reads the attributes that were not read yet."""
        _, _, correlation, timeout, flags, _, outputs, *lengths = self._head
        id_bytes, correlation_bytes, parameters_bytes, trace_bytes = lengths
        texts = self._texts
        at = 0
        if texts:
            self._id = texts[:id_bytes].decode()
            at = id_bytes + correlation_bytes
            self._correlation = texts[id_bytes:at].decode() if correlation_bytes else correlation
            self._parameters = texts[at : at + parameters_bytes].decode() or "{}"
            at += parameters_bytes
            context = texts[at : at + trace_bytes].decode()
            at += trace_bytes
        else:
            self._id, self._correlation, self._parameters, context = "", correlation, "{}", ""
        self._timeout = timeout
        self._flags = flags
        self._trace = trace_of(context, self._head[:2])
        if outputs == ALL_OUTPUTS:
            self._names = link.current.outputs
            return
        self._names = names = []
        for _ in range(outputs):
            start = at + 2
            at = start + texts[at] + (texts[at + 1] << 8)
            names.append(texts[start:at].decode())

    def __getattr__(self, name):
        # Called only for slots that are not set yet.
        if name in ("_id", "_correlation", "_flags", "_timeout", "_parameters", "_names",
            "_trace") and self._head is not None:
            self._read()
            return object.__getattribute__(self, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def inputs(self):
        return list(self._inputs)

    def request_id(self):
        return self._id

    def correlation_id(self):
        """An int, or a str if the client used one; 0 if none."""
        return self._correlation

    def flags(self):
        return self._flags

    def set_flags(self, *args, **kwargs):
        signature = "(self: c_python_backend_utils.InferenceRequest, flags: int) -> None"
        (flags,) = bind("set_flags", ("flags",), {}, signature, args, kwargs)
        try:
            flags = whole(flags, 0, _UINT32)
        except TypeError:
            raise incompatible("set_flags", signature, args, kwargs) from None
        self._flags  # Read before it is overwritten.
        self._flags = flags

    def timeout(self):
        """Microseconds."""
        return self._timeout

    def parameters(self):
        """JSON text."""
        return self._parameters

    def requested_output_names(self):
        return set(self._names)

    def _wanted(self):
        """Names of the requested outputs; None for all. Reads no other texts: clients ask for the same names again and
        again."""
        head = self._head
        if head is None:
            return frozenset(self._names)
        if head[6] == ALL_OUTPUTS:
            return None
        raw = self._texts[sum(head[7:]) :] if self._texts else None
        found = _wanted_names.get(raw)
        if found is None:
            found = frozenset(self._names)
            if raw and len(raw) <= _WANTED_BYTES_MAX:
                if len(_wanted_names) >= _WANTED_MAX:
                    _wanted_names.clear()
                _wanted_names[raw] = found
        return found

    def trace(self):
        return self._trace

    def get_response_sender(self):
        """The same object at each call."""
        if self._sender is None:
            if self._head is None:
                raise TritonModelException("A request that the model made has no response sender.")
            self._sender = sender_of(self._head[0], self._head[1])
        return self._sender

    def is_cancelled(self):
        return self._head is not None and link.current.is_cancelled(self._head[0], self._head[1])

    def set_release_flags(self, *args, **kwargs):
        signature = "(self: c_python_backend_utils.InferenceRequest, flags: int) -> None"
        (flags,) = bind("set_release_flags", ("flags",), {}, signature, args, kwargs)
        try:
            flags = whole(flags, 0, _UINT32)
        except TypeError:
            raise incompatible("set_release_flags", signature, args, kwargs) from None
        if self._head is None:
            raise TritonModelException("Release flags are of requests that came, not of those that the model makes.")
        self._release = flags

    def exec(self, *args, **kwargs):
        """Runs it and waits. With `decoupled=True`, an iterator over any number of responses (B-PY-10, B-PY-12)."""
        return link.current.execute(self, _decoupled("exec", args, kwargs))

    def async_exec(self, *args, **kwargs):
        """Like `exec`, as a future of the running event loop (B-PY-11)."""
        return link.current.execute_async(self, _decoupled("async_exec", args, kwargs))


def _decoupled(what, args, kwargs):
    signature = "(self: c_python_backend_utils.InferenceRequest, decoupled: bool = False) -> object"
    (decoupled,) = bind(what, ("decoupled",), {"decoupled": False}, signature, args, kwargs)
    if type(decoupled) is not bool:
        # As in Triton, numbers convert to booleans; None does not.
        if decoupled is None or not hasattr(decoupled, "__bool__"):
            raise incompatible(what, signature, args, kwargs)
    return bool(decoupled)


def _correlation(value):
    if isinstance(value, str):
        try:
            return text(value)
        except TypeError:
            raise RuntimeError(f"Unable to cast Python instance of type {type(value)} {UNCASTABLE}") from None
    if isinstance(value, int):
        if not 0 <= value <= _UINT64:
            raise RuntimeError(f"Unable to cast Python instance of type {type(value)} {UNCASTABLE}")
        return int(value)
    if value is None:
        raise TypeError(
            "__init__(): incompatible constructor arguments. The following argument types are supported:\n"
            f"    1. {_SIGNATURE}\n\nInvoked with: correlation_id=None"
        )
    raise TritonModelException("Correlation ID must be integer or string")
