"""Memory of devices (B-PY-07, B-PYR-14; shm/README.md, "Devices"): inputs lent by the server, and outputs of a model.

Opens `libcuda` through ctypes, with its driver API alone, and only for a model that may receive or create such tensors:
no CUDA package is needed. Uses the primary context of a device, as frameworks do, and restores a thread's context.

Invariant: a handle is open while a lease of it is used, and closed once the server closed its own and no lease is left.
"""
import ctypes
import os
import threading
import weakref
from collections import deque
from contextlib import contextmanager

import numpy as np

from . import failure
from ._protocol import BLOCK_OFFSET_BITS, DEVICE_SEGMENT, HANDLE_BYTES, LEASES_MAX
from .kinds import TritonModelException

#: Smaller outputs are copied to the host here: opening and closing their memory in the server takes longer.
LENT_BYTES_MIN = 1 << 20
#: Errors of the driver after which no context of this process is usable (crates/device/src/failure.rs).
STICKY = frozenset((214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999))
_LAZY_ENABLE_PEER_ACCESS = 1
_NON_BLOCKING = 1


class Failed(Exception):
    """The driver returned an error, or is missing."""

    def __init__(self, text, code=0):
        super().__init__(text)
        self.code = code


class _Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * HANDLE_BYTES)]


_ADDRESS, _POINTER, _SIZE = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t
_FUNCTIONS = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (_POINTER, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (_POINTER, ctypes.c_int),
    "cuCtxPushCurrent_v2": (_POINTER,),
    "cuCtxPopCurrent_v2": (_POINTER,),
    "cuCtxSynchronize": (),
    "cuIpcOpenMemHandle_v2": (_POINTER, _Handle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (_ADDRESS,),
    "cuIpcGetMemHandle": (_POINTER, _ADDRESS),
    "cuMemGetAddressRange_v2": (_POINTER, _POINTER, _ADDRESS),
    "cuMemcpyDtoH_v2": (_POINTER, _ADDRESS, _SIZE),
    "cuStreamCreateWithPriority": (_POINTER, ctypes.c_uint, ctypes.c_int),
    "cuStreamSynchronize": (_POINTER,),
}


class Driver:
    """The used functions of libcuda, as calls that raise `Failed`."""

    def __init__(self):
        # Without the usual names, as in the server.
        named = os.environ.get("NEREID_LIBCUDA")
        why = None
        for path in (named,) if named else ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"):
            try:
                self._library = ctypes.CDLL(path)
                break
            except OSError as e:
                why = why or e
        else:
            raise Failed(str(why))
        self._functions = {}
        self._contexts = {}
        self._streams = {}
        self._lock = threading.Lock()
        self.call("cuInit", 0)

    def call(self, name, *arguments):
        function = self._functions.get(name)
        if function is None:
            try:
                function = self._library[name]
            except AttributeError:
                raise Failed(f"the CUDA driver has no {name}") from None
            function.argtypes, function.restype = _FUNCTIONS[name], ctypes.c_int
            self._functions[name] = function
        code = function(*arguments)
        if code:
            raise Failed(f"{name} failed with {self._words(code)}", code)

    def _words(self, code):
        found = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            try:
                self._library[name](ctypes.c_int(code), ctypes.byref(text))
            except AttributeError:
                pass
            found.append(text.value.decode() if text.value else None)
        return f"{found[0]} ({code}): {found[1]}" if all(found) else f"error {code}"

    def _context(self, device):
        with self._lock:
            context = self._contexts.get(device)
            if context is None:
                number, context = ctypes.c_int(), ctypes.c_void_p()
                self.call("cuDeviceGet", ctypes.byref(number), device)
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
                self._contexts[device] = context
            return context

    @contextmanager
    def on(self, device):
        """Sets the device of the calls inside; restores the thread's context."""
        self.call("cuCtxPushCurrent_v2", self._context(device))
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def open(self, device, handle):
        address = _ADDRESS()
        with self.on(device):
            self.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), _Handle.from_buffer_copy(handle),
                _LAZY_ENABLE_PEER_ACCESS)
        return address.value

    def close(self, device, address):
        with self.on(device):
            self.call("cuIpcCloseMemHandle", address)

    def exported(self, device, address):
        """`(handle, offset)` of memory that this process allocated."""
        base, size, handle = _ADDRESS(), _SIZE(), _Handle()
        with self.on(device):
            self.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
            self.call("cuIpcGetMemHandle", ctypes.byref(handle), base)
        return bytes(handle.bytes), address - base.value

    def read(self, device, address, to):
        """Fills an array of the host."""
        with self.on(device):
            self.call("cuMemcpyDtoH_v2", to.ctypes.data, address, to.nbytes)

    def finish(self, device):
        """Waits for all work of this process on the device, on every stream."""
        with self.on(device):
            self.call("cuCtxSynchronize")

    def stream(self, device):
        """A stream of our own that other libraries synchronise with; current device: `device`."""
        with self._lock:
            stream = self._streams.get(device)
            if stream is None:
                stream = ctypes.c_void_p()
                self.call("cuStreamCreateWithPriority", ctypes.byref(stream), _NON_BLOCKING, 0)
                self._streams[device] = stream
            return stream


_driver = None
_opening = threading.Lock()


def driver():
    global _driver
    with _opening:
        if _driver is None:
            _driver = Driver()
        return _driver


class Memory:
    """The bytes of a tensor on a device: contiguous, in C order, kept alive by `owner`. Takes the place of an array in
    `Tensor._array` and has the attributes that are used of both."""

    __slots__ = ("_address", "device", "size", "dtype", "shape", "owner", "handle", "offset", "lease", "_devices",
        "__weakref__")
    #: More than any frame takes: such a tensor is never written inline.
    nbytes = 1 << 62

    def __init__(self, device, address, dtype, shape, size, owner=None):
        self._address, self.device, self.size = address, device, size
        self.dtype, self.shape, self.owner = dtype, shape, owner
        self.handle, self.lease, self._devices = None, None, None

    @property
    def address(self):
        """Address in this process. Opened on first use."""
        if self._address is None:
            self._address = self._devices.open(self)
        return self._address

    def copy(self):
        raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")

    def to_host(self):
        array = np.empty(self.shape, self.dtype)
        if self.size:
            try:
                driver().read(self.device, self.address, array)
            except Failed as e:
                raise lose(e, f"a tensor on GPU {self.device} cannot be read: {e}") from None
        return array


def lose(error, text):
    """Error for the model from an error of the driver. After a sticky one this process must end: no context of it is
    usable any more."""
    if error.code in STICKY and failure.lost is None:
        failure.lost = str(error)
    return TritonModelException(text)


class _Lease(weakref.ref):

    __slots__ = ("number", "key", "opened")


class _Opened:

    __slots__ = ("address", "uses", "closing")

    def __init__(self, address):
        self.address, self.uses, self.closing = address, 0, False


class Devices:
    """Memory lent to a runner and by it. `send_later`: sends a frame, or a function's result, from any finalizer.
    `release` makes the frame for ended leases; `refuse` the one that says that this process cannot open memory."""

    def __init__(self, send_later, release, refuse):
        self._send_later, self._release, self._refuse = send_later, release, refuse
        self._lock = threading.RLock()  # a finalizer may run inside
        #: Leases in use.
        self.leases = {}
        self._opened = {}
        self._over = deque()
        self._lent = {}
        self._last = 0

    # Lent by the server.

    def lent(self, lease, device, offset, handle, dtype, shape, size):
        """Memory of the server while this object and others made from it live."""
        memory = Memory(device, None, dtype, shape, size)
        memory.handle, memory.offset, memory.lease, memory._devices = handle, offset, lease, self
        watch = _Lease(memory, self._ended)
        watch.number, watch.key, watch.opened = lease, id(memory), None
        self.leases[watch.key] = watch
        return memory

    def open(self, memory):
        key = memory.device, memory.handle
        with self._lock:
            watch = self.leases[id(memory)]
            opened = self._opened.get(key)
            if opened is None:
                try:
                    opened = self._opened[key] = _Opened(driver().open(*key))
                except Failed as e:
                    self._send_later(self._refuse())
                    raise lose(e, f"an input is on GPU {memory.device} and cannot be opened: {e}") from None
            opened.uses += 1
            watch.opened = key
        return opened.address + memory.offset

    def _ended(self, watch):
        self.leases.pop(watch.key, None)
        if watch.opened is not None:
            with self._lock:
                opened = self._opened.get(watch.opened)
                opened.uses -= 1
                if opened.closing and not opened.uses:
                    self._close(watch.opened)
        # After the end of its use: the server may close it at once.
        self._over.append(DEVICE_SEGMENT << BLOCK_OFFSET_BITS | watch.number)
        self._send_later(self._frame)

    def _frame(self):
        over = []
        try:
            while True:
                over.append(self._over.popleft())
        except IndexError:
            return self._release(over) if over else b""

    def close(self, device, handle):
        """Closes the handle, because the server has closed its own, once it is unused or before it is opened anew."""
        with self._lock:
            opened = self._opened.get((device, handle))
            if opened is None:
                return
            opened.closing = True
            if not opened.uses:
                self._close((device, handle))

    def _close(self, key):
        opened = self._opened.pop(key)
        try:
            driver().close(key[0], opened.address)
        except Failed:
            pass  # The exporting process has probably ended.

    def lease_of(self, memory):
        """`(lease, offset)` if memory is, or lies in, lent memory; else None."""
        if memory.lease is not None:
            return memory.lease, 0
        for watch in list(self.leases.values()):
            whole = watch()
            if whole is None or whole._address is None or whole.device != memory.device:
                continue
            inside = memory.address - whole._address
            if 0 <= inside and inside + memory.size <= whole.size:
                return whole.lease, inside
        return None

    # Lent to the server.

    def lend(self, memory):
        """`(lease, handle, offset)`, or None if the memory must be copied: it is small, or has no handle."""
        if memory.size < LENT_BYTES_MIN:
            return None
        try:
            handle, offset = driver().exported(memory.device, memory.address)
        except Failed as e:
            if e.code in STICKY:
                raise lose(e, f"a tensor on GPU {memory.device} cannot be sent: {e}") from None
            return None
        with self._lock:
            if len(self._lent) >= LEASES_MAX:
                return None
            self._last = (self._last + 1) & (1 << BLOCK_OFFSET_BITS) - 1
            self._lent[self._last] = memory
            return self._last, handle, offset

    def taken_back(self, ids):
        """Ends the leases among returned ids; returns the other ids."""
        if not self._lent:
            return ids
        blocks = []
        for number in ids:
            if number >> BLOCK_OFFSET_BITS == DEVICE_SEGMENT:
                self.take_back(number & (1 << BLOCK_OFFSET_BITS) - 1)
            else:
                blocks.append(number)
        return blocks

    def take_back(self, lease):
        memory = self._lent.pop(lease, None)
        del memory
