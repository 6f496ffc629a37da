"""Reads and writes frames (shm/README.md). Contents are copied from the reader's buffer, which the next frame
overwrites."""
from struct import Struct

import numpy as np

from . import arena, device
from ._protocol import (
    ALL_OUTPUTS, ANSWER_ERROR, ANSWER_FLAG_FAILED, ANSWER_FLAG_FINAL, ANSWER_HEAD, ANSWER_NONE, ANSWER_RESPONSE, CALL_FLAG_DECOUPLED,
    CALL_FLAG_DEVICES, CALL_FLAG_TRACED, CALL_HEAD, CALL_ID, CODE_INTERNAL, CODE_UNAVAILABLE, DEVICE_SEGMENT,
    DEVICE_TENSOR, EXECUTE_FLAG_FOLLOWED, EXECUTE_HEAD, FRAME_BYTES_MAX, FRAME_CALL, FRAME_RESPOND, FRAME_RESULT, HANDLE_BYTES, HEADER,
    INLINE_BYTES_MAX, PLACE_DEVICE_REQUEST, PLACE_DEVICE_RESPONSE, PLACE_INLINE, PLACE_REQUEST, PLACE_RESPONSE,
    REQUEST_HEAD, RESPOND_HEAD, RESULT_FLAG_FAILED, RESULT_HEAD, TENSOR_HEAD, TENSORS_MAX,
)  # fmt: skip
from .failure import cut, text_of
from .kinds import ErrorCode, TritonModelException
from .request import RELEASE_ALL, InferenceRequest
from .response import TritonError, received
from .tensor import BF16, BYTES, DTYPES, Tensor

#: Slot of a call that belongs to no request.
NO_SLOT = (1 << 32) - 1

_new_request = InferenceRequest.__new__
_new_tensor = Tensor.__new__
_ndarray = np.ndarray
_DIMS = [Struct(f"<{rank}q") for rank in range(65)]
_CACHED_MAX = 4096
#: Limit per response: a batch of many is sent in one frame.
PARAMETERS_BYTES_MAX = 1 << 24
_CALLED_MAX = 64
#: Frames that may refer to memory of requests instead of a copy; others are None. A CALL's sender keeps its inputs.
_RESULT, _CALL = "result", "call"


#: The model and the instance of this process, from LOAD.
instance = (1, 0)


class TooLarge(Exception):
    """A message fits into no frame. The text is for the client."""


#: `Header` and `ResultHead`.
_RESULT_START = Struct(HEADER.format + RESULT_HEAD.format[1:])


def _ids(blocks):
    return Struct(f"<{len(blocks)}Q").pack(*blocks)


def head(length, frame, flags=0, count=0):
    """The header of a frame about the instance."""
    return HEADER.pack(length, frame, flags, count, *instance)


def head_of_process(length, frame, count=0):
    """The header of a frame about the process."""
    return HEADER.pack(length, frame, 0, count, 0, 0)


class Codec:
    """Locates tensors. `requests` and `responses` are None without shared memory, `devices` without a server."""

    def __init__(self, model, requests, responses, devices=None):
        self._model = model
        self._devices = devices
        self._requests = requests
        self._responses = responses
        self._inline_max = INLINE_BYTES_MAX if responses is not None else FRAME_BYTES_MAX
        self._names = {}
        self._descriptions = {}
        self._called = {}
        #: Arrays over memory of requests that the last RESULT names. The host may hear of their blocks' end over the other socket, so they
        #: live until it has sent the next batch.
        self._named = []
        #: What a RESULT may refer to: `_RESULT`, or nothing, if the next batch may run before the host has read it.
        self._by_reference = _RESULT

    def execute(self, buf, at, count):
        """`(batch, releases, flags, requests)`."""
        if self._named:
            self._named = []
        batch, releases, flags = EXECUTE_HEAD.unpack_from(buf, at)
        self._by_reference = None if flags & EXECUTE_FLAG_FOLLOWED else _RESULT
        at += 16
        freed = ()
        if releases:
            freed = Struct(f"<{releases}Q").unpack_from(buf, at)
            at += 8 * releases
        requests = []
        for _ in range(count):
            request, at = self._request(buf, at)
            requests.append(request)
        return batch, freed, flags, requests

    def _request(self, buf, at):
        fields = REQUEST_HEAD.unpack_from(buf, at)
        at += 48
        request = _new_request(InferenceRequest)
        request._head = fields
        _, _, _, _, _, inputs, outputs, a, b, c, d = fields
        start = at
        at += a + b + c + d
        if outputs != ALL_OUTPUTS:
            for _ in range(outputs):
                at += 2 + buf[at] + (buf[at + 1] << 8)
        request._texts = bytes(buf[start:at]) if at != start else None
        request._sender = None
        request._release = RELEASE_ALL
        request._inputs, at = self.tensors(buf, at, inputs)
        return request, at

    def tensors(self, buf, at, count):
        read = TENSOR_HEAD.unpack_from
        names = self._names
        tensors = []
        for _ in range(count):
            name_bytes, code, rank, place, _, segment, offset, size = read(buf, at)
            at += 24
            end = at + name_bytes
            raw_name = bytes(buf[at:end])
            name = names.get(raw_name)
            if name is None:
                if len(names) > _CACHED_MAX:
                    names.clear()
                name = names[raw_name] = raw_name.decode()
            at = end + 8 * rank
            shape = _DIMS[rank].unpack_from(buf, end)
            tensor = _new_tensor(Tensor)
            tensor._name = name
            tensor._code = code
            tensor._shape = shape
            if place == PLACE_INLINE:
                end = at + size
                raw = buf[at:end]
                at = end
                if code == BYTES:
                    tensor._raw = raw
                    tensor._array = tensor._numpy = None
                else:
                    tensor._raw = None
                    tensor._array = array = _ndarray(shape, DTYPES[code], raw)
                    tensor._numpy = array if code != BF16 else None
            elif place >= PLACE_DEVICE_REQUEST:
                number, _, first = DEVICE_TENSOR.unpack_from(buf, at)
                handle = bytes(buf[at + 16 : at + 16 + HANDLE_BYTES])
                at += 16 + HANDLE_BYTES
                tensor._raw = tensor._numpy = None
                tensor._array = self._devices.lent(offset, number, first, handle, DTYPES[code], shape, size)
            elif code == BYTES:
                tensor._raw = self._requests.array(segment, offset, size, np.uint8, (size,))
                tensor._array = tensor._numpy = None
            else:
                tensor._raw = None
                tensor._array = array = self._requests.array(segment, offset, size, DTYPES[code], shape)
                tensor._numpy = array if code != BF16 else None
            tensors.append(tensor)
        return tensors, at

    def call_response(self, buf, at):
        """`(call, response, is_last)`."""
        (call,) = CALL_ID.unpack_from(buf, at)
        kind, flags, outputs, code, parameters_bytes, error_bytes = ANSWER_HEAD.unpack_from(buf, at + 8)
        at += 24
        end = at + parameters_bytes
        parameters = bytes(buf[at:end]).decode() or "{}"
        at = end + error_bytes
        error = None
        if kind == ANSWER_ERROR:
            error = TritonError(bytes(buf[end:at]).decode(), ErrorCode(code))
        tensors, at = self.tensors(buf, at, outputs)
        # The end alone has no parameters, not even empty ones.
        response = received(tensors, error, "" if kind == ANSWER_NONE else parameters)
        return call, response, bool(flags & ANSWER_FLAG_FINAL)

    # Sent frames. Parts are joined; the first one is the header.

    def result(self, batch, freed, parts, length, count):
        """The frame of a RESULT with answers: `parts`, whose first item is free for its start, and their length."""
        if freed:
            parts[0] = _RESULT_START.pack(16 + 8 * len(freed) + length, FRAME_RESULT, 0, count, *instance, batch,
                len(freed), 0) + _ids(freed)
        else:
            parts[0] = _RESULT_START.pack(16 + length, FRAME_RESULT, 0, count, *instance, batch, 0, 0)
        return b"".join(parts)

    def failed(self, batch, freed, text):
        text = cut(text).encode()
        body = _ids(freed) + text
        return _RESULT_START.pack(16 + len(body), FRAME_RESULT, RESULT_FLAG_FAILED, 0, *instance, batch, len(freed),
            len(text)) + body

    def respond(self, slot, generation, response, final, is_failed=False, taken=None):
        """The frame of a RESPOND. `taken` receives its blocks, for `give_back` if it is not sent."""
        parts = [b""]
        length = 8
        if response is None:
            parts.append(ANSWER_HEAD.pack(ANSWER_NONE, ANSWER_FLAG_FINAL, 0, 0, 0, 0))
            length += 16
        else:
            flags = (ANSWER_FLAG_FINAL if final else 0) | (ANSWER_FLAG_FAILED if is_failed else 0)
            # Copied: the model continues and may overwrite it.
            length += self.answer(parts, response, None, flags, None, taken)
        parts[0] = head(length, FRAME_RESPOND) + RESPOND_HEAD.pack(slot, generation)
        return b"".join(parts)

    def give_back(self, taken):
        """Frees the blocks of a frame that was not sent."""
        for number, offset in taken:
            if number == DEVICE_SEGMENT:
                self._devices.take_back(offset)
            else:
                self._responses.give(number, offset)

    def answer(self, parts, response, names, flags, by_reference=None, taken=None):
        """Appends an answer; returns its length. `names`: requested outputs, None for all. An error in it is sent to
        the client, not raised."""
        error = response._error
        if error is not None:
            return self.error(parts, error._code, error._message, flags)
        outputs = response._outputs
        if names is not None:
            outputs = [t for t in outputs if t._name in names]
        before = len(parts)
        taken = [] if taken is None else taken
        try:
            parts.append(None)
            length = self._tensors(parts, outputs, by_reference, taken)
        except (TooLarge, arena.Refused, TritonModelException) as e:
            del parts[before:]
            self.give_back(taken)
            taken.clear()
            if not isinstance(e, arena.Refused):
                return self.error(parts, CODE_INTERNAL, text_of(e), flags)
            text = f"Failed to allocate memory for the response of model '{self._model}': {e}"
            return self.error(parts, CODE_UNAVAILABLE, text, flags)
        parameters = response._parameters
        if parameters == "{}" or not parameters:
            parts[before] = ANSWER_HEAD.pack(ANSWER_RESPONSE, flags, len(outputs), 0, 0, 0)
            return length + 16
        parameters = _without_nul(parameters).encode()
        if length + len(parameters) > PARAMETERS_BYTES_MAX:
            del parts[before:]
            self.give_back(taken)
            text = (f"the parameters of a response have at most {PARAMETERS_BYTES_MAX} bytes, "
                f"these have {len(parameters)}")
            return self.error(parts, CODE_INTERNAL, text, flags)
        parts[before] = ANSWER_HEAD.pack(ANSWER_RESPONSE, flags, len(outputs), 0, len(parameters), 0) + parameters
        return length + 16 + len(parameters)

    def error(self, parts, code, text, flags=ANSWER_FLAG_FINAL):
        text = cut(text).encode()
        parts.append(ANSWER_HEAD.pack(ANSWER_ERROR, flags, 0, code, 0, len(text)) + text)
        return 16 + len(text)

    def end(self, parts, kind):
        parts.append(ANSWER_HEAD.pack(kind, 0, 0, 0, 0, 0))
        return 16

    def answer_of_batch(self, parts, response, names):
        return self.answer(parts, response, names, ANSWER_FLAG_FINAL, self._by_reference)

    def _tensors(self, parts, tensors, by_reference, taken):
        length = 0
        room = self._inline_max
        if len(tensors) > TENSORS_MAX:
            raise TooLarge(f"a response has at most {TENSORS_MAX} outputs, this one has {len(tensors)}")
        for tensor in tensors:
            array = tensor._array
            if array is None:
                array = tensor._raw
                size = len(array)
                if size <= room:
                    description = _describe(tensor, size, PLACE_INLINE, 0, 0)
            else:
                size = array.nbytes
                if size <= room:
                    key = (tensor._name, tensor._code, tensor._shape)
                    description = self._descriptions.get(key)
                    if description is None:
                        if len(self._descriptions) > _CACHED_MAX:
                            self._descriptions.clear()
                        description = self._descriptions[key] = _describe(tensor, size, PLACE_INLINE, 0, 0)
            if size <= room:
                room -= size
                parts.append(description)
                parts.append(array)
                length += len(description) + size
                continue
            description = None
            if type(array) is device.Memory:
                description = self._on_device(tensor, array, by_reference, taken)
                if description is None:
                    array = array.to_host()
                    size = array.nbytes
                    if size <= room:
                        room -= size
                        description = _describe(tensor, size, PLACE_INLINE, 0, 0)
                        parts += description, array
                        length += len(description) + size
                        continue
            if description is None:
                description = self._in_segment(tensor, array, size, by_reference, taken)
            parts.append(description)
            length += len(description)
        return length

    def _on_device(self, tensor, memory, by_reference, taken):
        """The description of a tensor whose memory the server reads on the device; None if it must be copied first."""
        if by_reference is None or self._devices is None or not memory.size:
            # The model continues and may overwrite it.
            return None
        lent = self._devices.lease_of(memory)
        if lent is not None:
            lease, first = lent
            description = _describe(tensor, memory.size, PLACE_DEVICE_REQUEST, DEVICE_SEGMENT, lease)
            return description + DEVICE_TENSOR.pack(memory.device, 0, first) + bytes(HANDLE_BYTES)
        lends = self._devices.lend(memory)
        if lends is None:
            return None
        lease, handle, first = lends
        taken.append((DEVICE_SEGMENT, lease))
        description = _describe(tensor, memory.size, PLACE_DEVICE_RESPONSE, DEVICE_SEGMENT, lease)
        return description + DEVICE_TENSOR.pack(memory.device, 0, first) + handle

    def _in_segment(self, tensor, array, size, by_reference, taken):
        if self._responses is None:
            raise TooLarge(f"output '{tensor._name}' has {size} bytes, which fit into no frame")
        if by_reference is not None and isinstance(array, _ndarray):
            place = self._requests.place_of(array)
            if place is not None:
                if by_reference is _RESULT:
                    self._named.append(array)
                return _describe(tensor, size, PLACE_REQUEST, *place)
        number, offset, segment = self._responses.take(size)
        taken.append((number, offset))
        if isinstance(array, _ndarray):
            _ndarray(array.shape, array.dtype, segment.memory, offset)[...] = array
        else:
            segment.memory[offset : offset + size] = array
        return _describe(tensor, size, PLACE_RESPONSE, number, offset)

    def call(self, number, request, parent, decoupled):
        """The parts of a CALL. Raises `TooLarge` and `arena.Refused`."""
        slot, generation = parent or (NO_SLOT, 0)
        model, names, outputs = self._whom(request)
        correlation, text = request._correlation, b""
        if isinstance(correlation, str):
            correlation, text = 0, correlation.encode()
        parameters = request._parameters.encode() if request._parameters != "{}" else b""
        trace = request._trace._context
        trace = trace.encode() if trace else b""
        identifier = request._id.encode()
        flags = CALL_FLAG_DECOUPLED if decoupled else 0
        if request._trace._owner is not None:
            flags |= CALL_FLAG_TRACED
        if not getattr(request, "_in_host", False):
            # Has an effect for models with inputs on devices.
            flags |= CALL_FLAG_DEVICES
        inputs = request._inputs
        start = CALL_HEAD.pack(number, request._version, slot, generation, len(model), flags, 0, 0) + model
        start += REQUEST_HEAD.pack(
            0, 0, correlation, request._timeout, request._flags, len(inputs), outputs, len(identifier), len(text),
            len(parameters), len(trace)
        )
        start += identifier + text + parameters + trace + names
        parts = [None]
        taken = []
        try:
            length = len(start) + self._tensors(parts, inputs, _CALL, taken)
            if length > FRAME_BYTES_MAX:
                raise TooLarge(f"a request may have {FRAME_BYTES_MAX} bytes beside its tensors; this one has {length}")
        except (TooLarge, arena.Refused, TritonModelException):
            self.give_back(taken)
            raise
        parts[0] = head(length, FRAME_CALL) + start
        return parts

    def _whom(self, request):
        """Name of the called model, encoded names of the requested outputs, and their number."""
        key = (request._model, *request._names)
        found = self._called.get(key)
        if found is None:
            model, names = request._model.encode(), [n.encode() for n in dict.fromkeys(request._names)]
            if len(model) > 65535 or len(names) > TENSORS_MAX or any(len(n) > 65535 for n in names):
                raise TooLarge(f"the names of this request of model '{request._model[:64]}' are too long or too many")
            found = model, b"".join(len(n).to_bytes(2, "little") + n for n in names), len(names) or ALL_OUTPUTS
            if len(self._called) > _CALLED_MAX:
                self._called.clear()
            self._called[key] = found
        return found


def _describe(tensor, size, place, segment, offset):
    name = tensor._name.encode()
    if len(name) > 65535:
        raise TooLarge(f"the name of a tensor has {len(name)} bytes; 65535 are the most")
    shape = tensor._shape
    return TENSOR_HEAD.pack(len(name), tensor._code, len(shape), place, 0, segment, offset, size) + (
        name + _DIMS[len(shape)].pack(*shape))


def _without_nul(parameters):
    """Texts in parameters end at a NUL, as in Triton."""
    if "\\u0000" not in parameters:
        return parameters
    import json

    cleaned = {cut(k): cut(v) if isinstance(v, str) else v for k, v in json.loads(parameters).items()}
    return json.dumps(cleaned)


