"""A region of system shared memory that holds the tensors of a request and of its answer."""
import inspect
import os
import weakref
from typing import Any, Dict, List, Mapping, Optional, Sequence

import numpy as np

from . import file
from .layout import DTYPES, Layout, RegionError, Space, byte_size, shape_text
from .strings import is_strings, packed, unpacked

# The first datatype of a numpy type is the one that is meant by it: bits of BF16 are said to be such.
DATATYPES = {dtype: name for name, dtype in reversed(list(DTYPES.items()))}


class Region:
    """All tensors of a request and of its answer, in one piece of memory that this process and the server share.

    Buffers: the region owns the memory, arrays from `array` are views of it. Who may write: you, while no request that names the tensor is
    in flight; the server, from the moment a request names it as an output until it is answered. The memory lives until the region is closed,
    the last view is gone, and the server has unregistered it; views never dangle. The file in /dev/shm lives until `unlink`, `close`, the
    end of the `with` block or of this process; after SIGKILL it stays, unless `unlink` was called before.

    Not safe for threads that use the same tensors; different regions, and different tensors of one, are independent.
    """

    def __init__(self, layout: Layout, key: str, memory: Any, name: Optional[str], owns_file: bool):
        self.layout = layout
        #: What the server opens, `/name` of a file in /dev/shm.
        self.key = key
        #: What requests call the region.
        self.name = key.lstrip("/") if name is None else name
        self.byte_size = layout.byte_size
        self._memory = memory
        self._used: Dict[str, int] = {}
        self._shapes = {space.name: space.shape for space in layout.spaces.values()}
        self._unlink = weakref.finalize(self, file.unlink, key, os.getpid()) if owns_file else None

    @classmethod
    def create(cls, tensors: Mapping[str, Any], key: Optional[str] = None, name: Optional[str] = None) -> "Region":
        """Makes a region for `tensors`: numpy arrays, which are copied in, and what Layout takes for the others.

        The key is one that nobody has, unless it is given. Raises FileExistsError for a key that is there already, OSError when /dev/shm
        has not enough room, RegionError for tensors that have no place.
        """
        arrays = {tensor: value for tensor, value in tensors.items() if isinstance(value, np.ndarray)}
        layout = Layout({tensor: spec_of(tensor, value) if tensor in arrays else value for tensor, value in tensors.items()})
        key = file.fresh_key() if key is None else "/" + key.lstrip("/")
        region = cls(layout, key, file.create(key, layout.byte_size), name, owns_file=True)
        try:
            for tensor, value in arrays.items():
                region.put(tensor, value)
        except BaseException:
            region.close()
            raise
        return region

    @classmethod
    def attach(cls, key: str, tensors: Mapping[str, Sequence], name: Optional[str] = None) -> "Region":
        """Opens a region that another process made, with the same `tensors`. That process removes the file; `close` here does not."""
        layout = Layout(tensors)
        key = "/" + key.lstrip("/")
        return cls(layout, key, file.attach(key, layout.byte_size), name, owns_file=False)

    # Tensors.

    def array(self, name: str, shape: Optional[Sequence[int]] = None) -> np.ndarray:
        """The tensor `name`: a writable view for numbers, a copy (an object array of `bytes`) for BYTES.

        `shape` is that of the answer, for tensors whose shape was not known. A view shows what the server writes later, too: copy what is
        to outlast the next request.
        """
        space = self.layout[name]
        dims = [int(dim) for dim in (self._shapes[name] if shape is None else shape)]
        if any(dim < 0 for dim in dims):
            raise RegionError(f"tensor '{name}': its shape {shape_text(dims)} is not known; give the shape of the response")
        if space.datatype == "BYTES":
            with memoryview(self._mapped) as whole, whole[space.offset : space.offset + space.capacity] as window:
                return unpacked(name, window, dims)
        size = byte_size(space.datatype, dims) or 0
        check_fits(space, dims, size)
        dtype = DTYPES[space.datatype]
        return np.frombuffer(self._mapped, dtype, size // dtype.itemsize, space.offset).reshape(dims)

    def put(self, name: str, value: Any) -> None:
        """Copies an array into the tensor `name`. Its shape may be another than before, if it fits; `value` may be reused at once."""
        space = self.layout[name]
        array = np.asarray(value)
        dims = list(array.shape)
        if space.datatype == "BYTES":
            if not is_strings(array):
                raise RegionError(f"tensor '{name}': an array of {array.dtype} is not BYTES")
            data = packed(name, array)
            check_fits(space, dims, len(data))
            self._mapped[space.offset : space.offset + len(data)] = data
            self._used[name] = len(data)
        else:
            if array.dtype.newbyteorder("<") != DTYPES[space.datatype].newbyteorder("<"):
                raise RegionError(f"tensor '{name}': an array of {array.dtype} is not {space.datatype}")
            check_fits(space, dims, array.nbytes)
            self.array(name, dims)[...] = array
            self._used[name] = array.nbytes
        self._shapes[name] = dims

    # What requests say.

    def registration(self) -> Dict[str, Any]:
        """The body of POST /v2/systemsharedmemory/region/{name}/register."""
        return {"key": self.key, "offset": 0, "byte_size": self.byte_size}

    def parameters(self, name: str, output: bool = False) -> Dict[str, Any]:
        """The `parameters` of an input of a request, or of an output that is asked for.

        An input has as many bytes as were put there, an output all that were kept for it.
        """
        space = self.layout[name]
        size = space.capacity if output else self._input_size(space)
        return {"shared_memory_region": self.name, "shared_memory_offset": space.offset, "shared_memory_byte_size": size}

    def json_input(self, name: str) -> Dict[str, Any]:
        """An element of `inputs` of a JSON request."""
        parameters = self.parameters(name)
        return {"name": name, "datatype": self.layout[name].datatype, "shape": self._shapes[name], "parameters": parameters}

    def json_output(self, name: str) -> Dict[str, Any]:
        """An element of `outputs` of a JSON request."""
        return {"name": name, "parameters": self.parameters(name, output=True)}

    def infer_inputs(self, client_module: Any, *names: str) -> List[Any]:
        """The `InferInput` of each tensor; `client_module` is tritonclient.http or tritonclient.grpc, or their `.aio`."""
        made = []
        for name in names:
            space = self.layout[name]
            one = client_module.InferInput(name, self._shapes[name], space.datatype)
            one.set_shared_memory(self.name, self._input_size(space), space.offset)
            made.append(one)
        return made

    def infer_outputs(self, client_module: Any, *names: str) -> List[Any]:
        """The `InferRequestedOutput` of each tensor."""
        made = []
        for name in names:
            space = self.layout[name]
            one = client_module.InferRequestedOutput(name)
            one.set_shared_memory(self.name, space.capacity, space.offset)
            made.append(one)
        return made

    # Its life.

    def registered(self, client: Any) -> "Registration":
        """Registers the region with the server of a client of tritonclient for the length of a `with` block, or `async with` for `.aio`."""
        return Registration(self, client)

    def unlink(self) -> None:
        """Removes the file now. Who has mapped it goes on using it, a server that registered it too; nobody else can open it.

        Called after registering, nothing stays behind however this process ends.
        """
        if self._unlink is not None:
            self._unlink()

    def close(self) -> None:
        """Removes the file, if this region made it, and lets go of the memory. Views that are left stay valid. Twice is as good as once."""
        self.unlink()
        memory, self._memory = self._memory, None
        if memory is not None:
            try:
                memory.close()
            except BufferError:
                # Views are left. The memory is unmapped with the last of them.
                pass

    def __enter__(self) -> "Region":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def _mapped(self) -> Any:
        if self._memory is None:
            raise RegionError(f"region {self.name}: it is closed")
        return self._memory

    def _input_size(self, space: Space) -> int:
        size = self._used.get(space.name)
        if size is not None:
            return size
        # Numbers may also have been written through a view, or by the process that made the region.
        known = byte_size(space.datatype, self._shapes[space.name])
        if known is None:
            raise RegionError(f"tensor '{space.name}': put an array there first; its shape and size are not known")
        return known


class Registration:
    """A region that a server knows, for the length of a block."""

    def __init__(self, region: Region, client: Any):
        self._region = region
        self._client = client

    def _register(self) -> Any:
        region = self._region
        return self._client.register_system_shared_memory(region.name, region.key, region.byte_size)

    def _unregister(self) -> Any:
        return self._client.unregister_system_shared_memory(self._region.name)

    def __enter__(self) -> Region:
        answer = self._register()
        if inspect.isawaitable(answer):
            answer.close()
            raise TypeError("this client is asynchronous: use `async with`")
        return self._region

    def __exit__(self, *_: Any) -> None:
        self._unregister()

    async def __aenter__(self) -> Region:
        await self._register()
        return self._region

    async def __aexit__(self, *_: Any) -> None:
        await self._unregister()


def spec_of(name: str, array: np.ndarray) -> Sequence:
    """What Layout takes for a tensor like `array`."""
    if is_strings(array):
        return "BYTES", array.shape, len(packed(name, array))
    datatype = DATATYPES.get(array.dtype.newbyteorder("<"))
    if datatype is None:
        raise RegionError(f"tensor '{name}': there is no datatype for an array of {array.dtype}")
    return datatype, array.shape


def check_fits(space: Space, shape: Sequence[int], size: int) -> None:
    if size > space.capacity:
        raise RegionError(
            f"tensor '{space.name}': {space.datatype} {shape_text(shape)} takes {size} bytes, its capacity is {space.capacity}"
        )
