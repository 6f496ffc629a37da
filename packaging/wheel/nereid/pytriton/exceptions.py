"""Exceptions of the PyTriton form."""


class PyTritonError(Exception):
    """The base of the others."""

    def __init__(self, message: str) -> None:
        super().__init__(message)

    @property
    def message(self) -> str:
        return str(self.args[0])


class PyTritonValidationError(PyTritonError):
    """A name, a result or a configuration is not valid."""


class PyTritonInvalidOperationError(PyTritonError):
    """The operation is not possible in this state."""


class PyTritonBadParameterError(PyTritonError):
    """A parameter has a wrong value."""


class PyTritonModelConfigError(PyTritonError):
    """The configuration of a model is wrong."""


class PyTritonUnrecoverableError(PyTritonError):
    """Raised by a bound function that can run no more: the server is stopped, and `serve` returns."""


class PyTritonRuntimeError(PyTritonError):
    """Any other error."""
