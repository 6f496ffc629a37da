"""Shared memory: segments, request blocks lent by the host, response blocks allocated here (B-PYR-02, B-PYR-03). The
host allocates request segments; a block is reported as free when the last array over it is gone. This process allocates
in response segments; the host reports the blocks it has read. Neither side trusts the contents."""
import mmap
import os
import threading
import weakref
from bisect import bisect_left
from collections import deque

import numpy as np

from ._protocol import ALIGNMENT, BLOCK_OFFSET_BITS

_OFFSET = (1 << BLOCK_OFFSET_BITS) - 1


class Refused(Exception):
    """There is no room for a response, and the host adds no segment."""


class _Lent(weakref.ref):
    """Watches the array over a request block."""

    __slots__ = ("block", "bytes", "key")


class Requests:
    """Request segments and their free blocks."""

    def __init__(self, report):
        self._segments = {}
        self._came = threading.Condition()
        self._lent = {}
        self._report = report
        #: Ids of free blocks to report. Appended wherever an array ends, so only with lock-free operations.
        self.free = deque()
        self._free_bytes = 0
        self._report_bytes = 1 << 62

    def add(self, number, memory):
        with self._came:
            self._segments[number] = memory
            self._report_bytes = len(memory) // 4
            self._came.notify_all()

    def _segment(self, number):
        with self._came:
            while number not in self._segments:
                self._came.wait()
            return self._segments[number]

    def array(self, segment, offset, size, dtype, shape):
        """A writable array over a block; the caller owns the block until the array and all its views are gone."""
        memory = self._segments.get(segment)
        if memory is None:
            memory = self._segment(segment)
        array = np.ndarray(shape, dtype, memory, offset)
        watch = _Lent(array, self._ended)
        watch.block = segment << BLOCK_OFFSET_BITS | offset
        watch.bytes = size
        watch.key = id(array)
        self._lent[watch.key] = watch
        return array

    def _ended(self, watch):
        self._lent.pop(watch.key, None)
        self.free.append(watch.block)
        self._free_bytes += watch.bytes
        if self._free_bytes > self._report_bytes:
            self._free_bytes = 0
            self._report()

    def take_free(self):
        taken = []
        free = self.free
        self._free_bytes = 0
        try:
            while True:
                taken.append(free.popleft())
        except IndexError:
            return taken

    def place_of(self, array):
        """`(segment, offset)` of the memory of an array that is, or is a view of, a lent block; else None."""
        if not self._lent:
            return None
        watch = self._lent.get(id(array))
        if watch is not None:
            return watch.block >> BLOCK_OFFSET_BITS, watch.block & _OFFSET
        base = array.base
        while isinstance(base, np.ndarray):
            watch = self._lent.get(id(base))
            if watch is not None:
                inside = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
                return watch.block >> BLOCK_OFFSET_BITS, (watch.block & _OFFSET) + inside
            base = base.base
        return None


class _Segment:
    """A response segment: free ranges by start, in order; adjacent ranges are merged."""

    def __init__(self, memory):
        self.memory = memory
        self.bytes = np.frombuffer(memory, np.uint8)
        self.starts = [0]
        self.sizes = {0: len(memory)}
        self.used = {}

    def take(self, size):
        for at, start in enumerate(self.starts):
            room = self.sizes[start]
            if room >= size:
                del self.sizes[start]
                if room == size:
                    del self.starts[at]
                else:
                    self.starts[at] = start + size
                    self.sizes[start + size] = room - size
                self.used[start] = size
                return start
        return None

    def give(self, start):
        size = self.used.pop(start, None)
        if size is None:
            return
        starts, sizes = self.starts, self.sizes
        at = bisect_left(starts, start)
        if at < len(starts) and starts[at] == start + size:
            size += sizes.pop(starts.pop(at))
        if at > 0 and starts[at - 1] + sizes[starts[at - 1]] == start:
            sizes[starts[at - 1]] += size
            return
        starts.insert(at, start)
        sizes[start] = size


class Responses:
    """Response segments and the allocator of their blocks."""

    def __init__(self, need):
        self._segments = []
        self._lock = threading.Lock()
        self._need = need
        self._asking = threading.Lock()
        self._answered = threading.Condition()
        self._answers = 0
        self._refused = False
        #: Ids that the host has read; freed by the next allocation, so that their reader waits for no lock.
        self.returned = deque()

    def add(self, memory):
        """Adds the memory of a SEGMENT; None: the host refused."""
        with self._answered:
            if memory is not None:
                self._segments.append(_Segment(memory))
            self._refused = memory is None
            self._answers += 1
            self._answered.notify_all()

    def take(self, size):
        """`(segment number, offset, segment)` of at least `size` bytes. Waits for the host; raises `Refused`."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        while True:
            with self._lock:
                self._collect()
                for number, segment in enumerate(self._segments):
                    offset = segment.take(size)
                    if offset is not None:
                        return number, offset, segment
                seen = self._answers
            self._ask(size, seen)

    def _collect(self):
        returned = self.returned
        while returned:
            block = returned.popleft()
            number = block >> BLOCK_OFFSET_BITS
            if number < len(self._segments):
                self._segments[number].give(block & _OFFSET)

    def _ask(self, size, seen):
        with self._asking:
            with self._answered:
                if self._answers != seen:
                    return
            self._need(size)
            with self._answered:
                while self._answers == seen:
                    self._answered.wait()
                if self._refused:
                    raise Refused(f"{size} bytes are more than shm-max-byte-size or --memory-limit leaves")

    def give(self, number, offset):
        """Frees a block that was not sent."""
        self.returned.append(number << BLOCK_OFFSET_BITS | offset)


def mapped(descriptor, size):
    """Maps shared memory, writable, and closes its descriptor."""
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


def mapped_to_read(descriptor, size):
    """Like `mapped`, read-only."""
    try:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
