"""`ResponseIterator`: the responses of a decoupled call, as they come (B-PY-12)."""
from queue import SimpleQueue

from .kinds import public


@public
class ResponseIterator:
    """Waits for each response; what came is kept, so a second loop sees it again."""

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
        """Asks the called model to stop. What comes until it does is still iterated."""
        if not self._ended:
            self._call.cancel()

    def __del__(self):
        # An object that could not be made has no attributes.
        call = getattr(self, "_call", None)
        if call is not None:
            call.close()


def iterator_of(call):
    """`call` has `cancel()` and `close()`; who feeds the iterator puts `(response, is_last)` into what is returned second."""
    iterator = ResponseIterator.__new__(ResponseIterator)
    iterator._call = call
    iterator._came = came = SimpleQueue()
    iterator._kept = []
    iterator._at = 0
    iterator._ended = False
    return iterator, came
