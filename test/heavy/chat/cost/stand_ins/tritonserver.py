"""In the place of Triton's Python bindings, to measure its OpenAI front end alone: one model that sends a token every 20 ms, at no cost but a timer."""
import asyncio
import ctypes
import enum
import types

SECONDS = 0.02


class ModelControlMode(enum.Enum):
    NONE = 1
    EXPLICIT = 3


class DataType(enum.Enum):
    UINT32 = 1
    INT32 = 2


class TritonError(Exception):
    pass


class InvalidArgumentError(TritonError):
    pass


class Tensor:
    """One string, in the bytes of a BYTES tensor."""

    def __init__(self, text):
        data = len(text).to_bytes(4, "little") + text.encode()
        self.buffer = ctypes.create_string_buffer(data, len(data))
        self.data_ptr = ctypes.addressof(self.buffer)
        self.size = len(data)
        self.shape = [1]


class InferenceResponse:
    def __init__(self, outputs, final):
        self.outputs = outputs
        self.final = final


_api = types.SimpleNamespace(_response=types.SimpleNamespace(InferenceResponse=InferenceResponse))
TOKEN = {"text_output": Tensor(" token")}


class Model:
    version = 1

    def config(self):
        return {"backend": "python", "platform": "", "input": []}

    def create_request(self, inputs):
        return inputs

    async def async_infer(self, inputs):
        for _ in range(int(inputs["max_tokens"].flat[0]) - 1):
            await asyncio.sleep(SECONDS)
            yield InferenceResponse(TOKEN, False)
        yield InferenceResponse({}, True)


class Server:
    def __init__(self, **options):
        self.options = types.SimpleNamespace(**options)

    def start(self, **_):
        return self

    def models(self, **_):
        return {("paced", 1): None}

    def model(self, _):
        return Model()

    def ready(self):
        return True

    def metrics(self):
        return ""

    def stop(self):
        pass
