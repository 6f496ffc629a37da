"""Where each tensor of a region begins, and how many bytes are kept for it. Pure: no memory is touched here.

Invariant: spaces do not overlap, begin at multiples of ALIGNMENT, and lie inside `byte_size`. The vectors in
shm/vectors/layouts.json hold this module and its twin in TypeScript to the same offsets and the same texts.
"""
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from .protocol import ALIGNMENT

# What a server maps of all its regions together, at most; a larger one could never be registered.
REGION_BYTES_MAX = 1 << 40

# BF16 is what numpy has no type for: its bits.
DTYPES = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BF16": np.dtype("<u2"),
}


class RegionError(ValueError):
    """A tensor that does not fit where it is to go, a name that is not there, or a region that is too small or closed."""


class Space(NamedTuple):
    """The place of one tensor in a region."""

    name: str
    datatype: str
    #: As it was asked for: −1 where only an answer tells.
    shape: List[int]
    #: Bytes from the start of the region, a multiple of 64.
    offset: int
    #: How many bytes the tensor may have.
    capacity: int


class Layout:
    """The spaces of a region, in the order they were given.

    `tensors` maps a name to `(datatype, shape)`, or to `(datatype, shape, capacity)` with a capacity in bytes, which BYTES and shapes with
    a −1 need.

    >>> Layout({"INPUT0": ("INT32", [1, 16]), "OUTPUT0": ("BYTES", [1, 16], 1024)})["OUTPUT0"].offset
    64

    Raises RegionError for a datatype that does not exist, a tensor whose size is not known, and more than REGION_BYTES_MAX together.
    """

    def __init__(self, tensors: Mapping[str, Sequence]):
        self.spaces: Dict[str, Space] = {}
        offset = 0
        for name, wanted in tensors.items():
            datatype, shape, capacity = wanted if len(wanted) == 3 else (*wanted, None)
            space = Space(name, datatype, [int(dim) for dim in shape], offset, capacity_of(name, datatype, shape, capacity))
            self.spaces[name] = space
            # One byte at least, so that a tensor without elements has an offset inside the region: servers refuse any other.
            offset += -(-max(space.capacity, 1) // ALIGNMENT) * ALIGNMENT
            if offset > REGION_BYTES_MAX:
                raise RegionError(f"tensor '{name}': the region would have {offset} bytes, more than {REGION_BYTES_MAX}")
        if not self.spaces:
            raise RegionError("a region needs at least one tensor")
        #: Bytes of the whole region, a multiple of 64.
        self.byte_size = offset

    def __getitem__(self, name: str) -> Space:
        try:
            return self.spaces[name]
        except KeyError:
            raise RegionError(f"tensor '{name}': not in this region, which has {', '.join(self.spaces)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self.spaces


def capacity_of(name: str, datatype: str, shape: Sequence[int], capacity: Optional[int]) -> int:
    """Bytes to keep for a tensor: what was asked for, which is not less than what its shape takes."""
    if datatype != "BYTES" and datatype not in DTYPES:
        raise RegionError(f"tensor '{name}': there is no datatype {datatype}")
    if any(dim < -1 for dim in shape):
        raise RegionError(f"tensor '{name}': shape {shape_text(shape)} has a dimension below -1")
    needed = byte_size(datatype, shape)
    if capacity is None:
        if needed is None:
            raise RegionError(f"tensor '{name}': {datatype} {shape_text(shape)} can have any size; give it a capacity in bytes")
        return needed
    if capacity < (needed or 0):
        raise RegionError(f"tensor '{name}': {datatype} {shape_text(shape)} takes {needed or 0} bytes, its capacity is {capacity}")
    return int(capacity)


def byte_size(datatype: str, shape: Sequence[int]) -> Optional[int]:
    """Bytes of a tensor, or None when its shape does not tell."""
    if datatype == "BYTES" or -1 in shape:
        return None
    size = DTYPES[datatype].itemsize
    for dim in shape:
        # Python's integers: numpy's would wrap.
        size *= int(dim)
    return size


def shape_text(shape: Sequence[int]) -> str:
    return f"[{','.join(str(int(dim)) for dim in shape)}]"
