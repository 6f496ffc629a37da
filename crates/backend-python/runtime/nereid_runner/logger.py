"""`Logger` (B-PY-19): lines in the server's log, with their origin."""
import os
import sys

from . import link
from .kinds import LogLevel, bind, incompatible, public, text

# Numbers of the protocol's LogLevel.
_VERBOSE, _INFO, _WARNING, _ERROR = range(4)
_OF_KIND = {0: _INFO, 1: _WARNING, 2: _ERROR, 3: _VERBOSE}


def _write(what, level, args, kwargs, frame):
    signature = "(message: str) -> None"
    (message,) = bind(what, ("message",), {}, signature, args, kwargs)
    _send(what, signature, level, message, args, kwargs, frame)


def _send(what, signature, level, message, args, kwargs, frame):
    try:
        message = text(message)
    except TypeError:
        raise incompatible(what, signature, args, kwargs) from None
    link.current.log(level, os.path.basename(frame.f_code.co_filename), frame.f_lineno, message)


@public
class Logger:
    __slots__ = ()
    LogLevel = LogLevel
    INFO, WARNING, ERROR, VERBOSE = LogLevel.INFO, LogLevel.WARNING, LogLevel.ERROR, LogLevel.VERBOSE

    def __init__(self, *args, **kwargs):
        raise TypeError("c_python_backend_utils.Logger: No constructor defined!")

    @staticmethod
    def log(*args, **kwargs):
        signature = "(message: str, level: c_python_backend_utils.Logger.LogLevel = <LogLevel.INFO: 0>) -> None"
        message, level = bind("log", ("message", "level"), {"level": LogLevel.INFO}, signature, args, kwargs)
        if not isinstance(level, LogLevel):
            raise incompatible("log", signature, args, kwargs)
        _send("log", signature, _OF_KIND[level.value], message, args, kwargs, sys._getframe(1))

    @staticmethod
    def log_info(*args, **kwargs):
        _write("log_info", _INFO, args, kwargs, sys._getframe(1))

    @staticmethod
    def log_warn(*args, **kwargs):
        _write("log_warn", _WARNING, args, kwargs, sys._getframe(1))

    @staticmethod
    def log_error(*args, **kwargs):
        _write("log_error", _ERROR, args, kwargs, sys._getframe(1))

    @staticmethod
    def log_verbose(*args, **kwargs):
        _write("log_verbose", _VERBOSE, args, kwargs, sys._getframe(1))
