"""BYTES tensors: each element is a little-endian u32 length and that many bytes, one after the other."""
import struct

import numpy as np

from .layout import RegionError

ELEMENT_BYTES_MAX = (1 << 32) - 1


def is_strings(array: np.ndarray) -> bool:
    return array.dtype.kind in "OSU"


def packed(name: str, array: np.ndarray) -> bytes:
    """The encoding of an array of `str` (as UTF-8) and `bytes`."""
    parts = []
    for i, element in enumerate(array.reshape(-1).tolist()):
        if isinstance(element, str):
            element = element.encode()
        elif not isinstance(element, bytes):
            raise RegionError(f"tensor '{name}': element {i} is a {type(element).__name__}, not a str or bytes")
        if len(element) > ELEMENT_BYTES_MAX:
            raise RegionError(f"tensor '{name}': element {i} has {len(element)} bytes, more than {ELEMENT_BYTES_MAX}")
        parts.append(struct.pack("<I", len(element)))
        parts.append(element)
    return b"".join(parts)


def unpacked(name: str, data: memoryview, shape) -> np.ndarray:
    """The first elements in `data`, as many as `shape` has, copied: an object array of `bytes`.

    The server says how many elements there are and nowhere how many bytes, so what follows them is not looked at.
    """
    count = 1
    for dim in shape:
        count *= int(dim)
    elements = []
    at = 0
    for i in range(count):
        # One read of each length: a server may write while we read.
        length = struct.unpack_from("<I", data, at)[0] if at + 4 <= len(data) else len(data)
        if at + 4 + length > len(data):
            raise RegionError(f"tensor '{name}': element {i} of {count} reaches past its {len(data)} bytes")
        elements.append(bytes(data[at + 4 : at + 4 + length]))
        at += 4 + length
    array = np.empty(count, object)
    array[:] = elements
    return array.reshape([int(dim) for dim in shape])
