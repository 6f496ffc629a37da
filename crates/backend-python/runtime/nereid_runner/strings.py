"""BYTES tensors: each element is a u32 length and that many bytes, little-endian, in row-major order (B-PY-05). Without
compiled code, both directions first look for patterns that numpy handles as a whole: elements of one length, and short
texts without NULs. Others are processed one by one."""
import weakref
from itertools import repeat
from struct import Struct

import numpy as np

_U32 = Struct("<I")
_LENGTHS = [_U32.pack(n) for n in range(512)]
_SCAN_LEAST = 24  # Elements from which looking for a pattern costs less than it saves.


def encode(array):
    """The bytes of an array of objects or fixed-size bytes. `bytes` are unchanged, other objects `str(x).encode()`."""
    items = array.ravel().tolist() if array.dtype.kind == "S" or array.flags.c_contiguous else array.flatten().tolist()
    return encode_items(items)


def encode_items(items):
    """Like `encode`, for a list."""
    kinds = set(map(type, items))
    if kinds == {str}:
        items = list(map(str.encode, items))
    elif kinds and kinds != {bytes}:
        items = [i if type(i) is bytes else bytes(i) if isinstance(i, bytes) else str(i).encode() for i in items]
    lengths = list(map(len, items))
    count = len(items)
    if count >= _SCAN_LEAST and len(set(lengths)) == 1:
        return _encode_equal(items, count, lengths[0])
    parts = [None] * (2 * count)
    parts[1::2] = items
    if count and max(lengths) < len(_LENGTHS):
        parts[0::2] = map(_LENGTHS.__getitem__, lengths)
    else:
        parts[0::2] = map(_U32.pack, lengths)
    return b"".join(parts)


def _encode_equal(items, count, length):
    rows = np.empty((count, 4 + length), np.uint8)
    rows[:, :4] = np.frombuffer(_U32.pack(length), np.uint8)
    rows[:, 4:] = np.frombuffer(b"".join(items), np.uint8).reshape(count, length)
    return rows.tobytes()


def decode(raw, count=None):
    """A list of `bytes` from raw contents. `count` stops early; truncated data raises `struct.error`."""
    raw = bytes(raw)
    total = len(raw)
    if count is None or count >= _SCAN_LEAST:
        found = _decode_patterns(raw, total, count)
        if found is not None:
            return found
    items = []
    append, length_at = items.append, _U32.unpack_from
    at = 0
    if count is not None:
        for _ in repeat(None, count):
            start = at + 4
            at = start + length_at(raw, at)[0]
            append(raw[start:at])
        if at > total:
            raise ValueError("a string is cut")
        return items
    while at < total:
        start = at + 4
        length = length_at(raw, at)[0]
        at = start + length
        append(raw[start:at])
        if at > total:
            # Raises struct's error, which Triton's own helper does not catch.
            Struct(f"<{length}s").unpack_from(raw, start)
    return items


def _decode_patterns(raw, total, count):
    """All elements at once if of one length, or below 256 bytes without three NULs in a row; else None."""
    if total < 4 * _SCAN_LEAST:
        return None
    view = np.frombuffer(raw, np.uint8)
    length = _U32.unpack_from(raw)[0]
    rows = total // (4 + length)
    if rows * (4 + length) == total and (count is None or rows == count):
        table = view.reshape(rows, 4 + length)
        if (table[:, :4] == view[:4]).all():
            if length == 0:
                return [b""] * rows
            return [item for (item,) in Struct(f"4x{length}s").iter_unpack(raw)]
    if count is None or total > 64 * count:
        return None  # Looking at each byte would cost more than it saves.
    # A length below 256 is a byte and three NULs. If exactly these positions are consecutive, they are the elements.
    zero = view == 0
    starts = np.flatnonzero(zero[1:-2] & zero[2:-1] & zero[3:])
    if count is not None and len(starts) != count or not len(starts) or starts[0] != 0:
        return None
    ends = starts + 4 + view[starts]
    if ends[-1] != total or not (ends[:-1] == starts[1:]).all():
        return None
    return [raw[s:e] for s, e in zip((starts + 4).tolist(), ends.tolist())]


def to_array(items, shape):
    """A list of elements as an object array that does not own its memory, as in Triton."""
    array = np.empty(len(items), np.object_)
    array[:] = items
    return array.reshape(shape)


#: Arrays made from raw contents, by id: a weak reference, the elements and the raw contents.
_made = {}


def array_of(raw, count, shape):
    """The array of raw contents. `raw_of` recognises it while it lives."""
    items = decode(raw, count)
    array = to_array(items, shape)
    if count >= _SCAN_LEAST:
        key = id(array)
        _made[key] = (weakref.ref(array, lambda _: _made.pop(key, None)), items, raw)
    return array


def raw_of(array):
    """Like `encode`. An unchanged received array reuses its bytes: strings that a model passes on cost a third."""
    known = _made.get(id(array))
    if known is not None and known[0]() is array:
        try:
            if array.ravel().tolist() == known[1]:
                return known[2]
        except Exception:
            pass  # Something in it that compares in its own way.
    return encode(array)
