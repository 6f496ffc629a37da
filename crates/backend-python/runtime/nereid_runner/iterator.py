"""`ResponseIterator`: iterates over the responses of a decoupled call (B-PY-12)."""
from queue import SimpleQueue

from .kinds import public


@public
class ResponseIterator:
    """Waits for each response; keeps them, so that a second loop gets them again."""

    __slots__ = ("_call", "_came", "_kept", "_at", "_ended", "__weakref__")

    def __init__(self, *args, **kwargs):
        raise TypeError("c_python_backend_utils.ResponseIterator: No constructor defined!")

    def __iter__(self):
        if self._ended and self._at >= len(self._kept):
            self._at = 0
        return self

    def __next__(self):
        if self._at >= len(self._kept):
            if self._ended:
                raise StopIteration("Iteration is done for the responses.")
            response, self._ended = self._came.get()
            self._kept.append(response)
        self._at += 1
        return self._kept[self._at - 1]

    def cancel(self):
        """Asks the called model to stop. Responses until then are still iterated."""
        if not self._ended:
            self._call.cancel()

    def __del__(self):
        # An object whose construction failed has no attributes.
        call = getattr(self, "_call", None)
        if call is not None:
            call.close()


def iterator_of(call):
    """An iterator, and a function that takes `(response, is_last)`. `call` has `cancel()` and `close()`."""
    iterator = ResponseIterator.__new__(ResponseIterator)
    iterator._call = call
    iterator._came = came = SimpleQueue()
    iterator._kept = []
    iterator._at = 0
    iterator._ended = False
    return iterator, came
