"""`TritonError`, `InferenceResponse` and `InferenceResponseSender` (B-PY-14 to B-PY-18)."""
import sys

from . import failure, link
from .kinds import ErrorCode, TritonModelException, bind, incompatible, listed, parameters_text, public, text, whole
from .tensor import Tensor

_UINT32 = (1 << 32) - 1


class _Code:
    """A class attribute that is a new object at each access, as in Triton: models compare with `==`."""

    def __init__(self, value):
        self.value = value

    def __get__(self, instance, owner):
        return ErrorCode(self.value)


@public
class TritonError:
    """An error with a code; not an exception."""

    __slots__ = ("_code", "_message", "__weakref__")
    _SIGNATURE = ("c_python_backend_utils.TritonError(message: str, "
        "code: c_python_backend_utils.__ErrorCode = <__ErrorCode.INTERNAL: 1>)")

    def __init__(self, *args, **kwargs):
        message, code = bind("TritonError.__init__", ("message", "code"), {"code": None}, self._SIGNATURE, args, kwargs)
        if code is None and not ("code" in kwargs or len(args) > 1):
            code = ErrorCode(1)
        if not isinstance(code, ErrorCode):
            raise incompatible("TritonError.__init__", self._SIGNATURE, args, kwargs)
        try:
            self._message = text(message)
        except TypeError:
            raise incompatible("TritonError.__init__", self._SIGNATURE, args, kwargs) from None
        self._code = code._value
        # A model may answer with the text of an exception that it handles.
        handled = sys.exc_info()[1]
        if handled is not None:
            failure.look(handled)

    def code(self):
        return ErrorCode(self._code)

    def message(self):
        return self._message


for _name, _value in ErrorCode._values.items():
    setattr(TritonError, _name, _Code(_value))


@public
class InferenceResponse:
    """A response of a model, or one that it receives from another."""

    __slots__ = ("_outputs", "_error", "_parameters", "__weakref__")
    _SIGNATURE = (
        "c_python_backend_utils.InferenceResponse(output_tensors: list[c_python_backend_utils.Tensor] = [], "
        "error: c_python_backend_utils.TritonError = None, parameters: object = None)"
    )

    def __init__(self, *args, **kwargs):
        self._error = None
        self._parameters = "{}"
        if len(args) == 1 and not kwargs:
            outputs = args[0]
        elif not args and len(kwargs) == 1 and "output_tensors" in kwargs:
            # As most models do: half the time of `bind`.
            outputs = kwargs["output_tensors"]
        else:
            outputs = self._all(args, kwargs)
        try:
            outputs = listed(outputs)
        except TypeError:
            raise incompatible("InferenceResponse.__init__", self._SIGNATURE, args, kwargs) from None
        for tensor in outputs:
            if type(tensor) is not Tensor and not isinstance(tensor, Tensor):
                if tensor is not None:
                    raise incompatible("InferenceResponse.__init__", self._SIGNATURE, args, kwargs)
                raise TritonModelException("Output tensor for inference response should not be empty.")
        self._outputs = outputs if self._error is None else []

    def _all(self, args, kwargs):
        names = ("output_tensors", "error", "parameters")
        defaults = {"output_tensors": [], "error": None, "parameters": None}
        outputs, error, parameters = bind("InferenceResponse.__init__", names, defaults, self._SIGNATURE, args, kwargs)
        if error is not None and not isinstance(error, TritonError):
            raise incompatible("InferenceResponse.__init__", self._SIGNATURE, args, kwargs)
        if parameters is not None:
            self._parameters = parameters_text(parameters)
        self._error = error
        return outputs

    def output_tensors(self):
        return list(self._outputs)

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error

    def parameters(self):
        """JSON text."""
        return self._parameters


def received(outputs, error=None, parameters="{}"):
    response = InferenceResponse.__new__(InferenceResponse)
    response._outputs = outputs
    response._error = error
    response._parameters = parameters
    return response


_FINAL = 1
_SEND = (
    "(self: c_python_backend_utils.InferenceResponseSender, response: c_python_backend_utils.InferenceResponse = None, "
    "flags: int = 0) -> None"
)


@public
class InferenceResponseSender:
    """Sends responses of one request at any time, from any thread. When its last reference is gone the request ends
    with an error (B-PY-17), so that no client waits for ever."""

    __slots__ = ("_slot", "_generation", "_decoupled", "_sent", "_closed", "_link", "__weakref__")

    def __init__(self, *args, **kwargs):
        raise TypeError("c_python_backend_utils.InferenceResponseSender: No constructor defined!")

    def send(self, *args, **kwargs):
        response, flags = bind("send", ("response", "flags"), {"response": None, "flags": 0}, _SEND, (*args,), kwargs)
        try:
            flags = whole(flags, 0, _UINT32)
        except TypeError:
            raise incompatible("send", _SEND, args, kwargs) from None
        if response is not None and not isinstance(response, InferenceResponse):
            raise incompatible("send", _SEND, args, kwargs)
        if flags not in (0, _FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is None and not flags:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        if not self._decoupled:
            if response is not None and self._sent:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send more than one response."
                )
            if response is None and not self._sent:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
                )
        if self._closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        self._closed = flags == _FINAL
        self._sent += response is not None
        self._link.respond(self._slot, self._generation, response, flags == _FINAL)

    def is_cancelled(self):
        return self._link.is_cancelled(self._slot, self._generation)

    def __del__(self):
        # An object whose construction failed has no attributes.
        if not getattr(self, "_closed", True):
            self._closed = True
            self._link.dropped(self._slot, self._generation)


def sender_of(slot, generation):
    """The only sender of a request; the caller keeps it."""
    sender = InferenceResponseSender.__new__(InferenceResponseSender)
    sender._slot = slot
    sender._generation = generation
    sender._link = link.current
    sender._decoupled = link.current.decoupled
    sender._sent = 0
    sender._closed = False
    return sender
