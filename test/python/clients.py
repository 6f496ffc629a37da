"""tritonclient's four clients behind one interface, so that a behaviour is written down once and asked of all."""
import asyncio

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

KINDS = ["http", "http.aio", "grpc", "grpc.aio"]


class Client:
    """`call` runs a client method to its end, whether it is a coroutine or not."""

    def __init__(self, kind, url):
        self.kind = kind
        self.is_http = kind.startswith("http")
        self.is_aio = kind.endswith("aio")
        self.types = tritonclient.http if self.is_http else tritonclient.grpc
        self.loop = asyncio.new_event_loop() if self.is_aio else None
        module = {"http": tritonclient.http, "http.aio": tritonclient.http.aio,
                  "grpc": tritonclient.grpc, "grpc.aio": tritonclient.grpc.aio}[kind]

        async def make():
            return module.InferenceServerClient(url)

        self.raw = self.loop.run_until_complete(make()) if self.is_aio else module.InferenceServerClient(url)

    def call(self, name, *args, **options):
        result = getattr(self.raw, name)(*args, **options)
        return self.loop.run_until_complete(result) if self.is_aio else result

    def ask(self, name, *args, **options):
        """A call whose answer is wanted as plain JSON objects."""
        return self.call(name, *args, **options) if self.is_http else self.call(name, *args, as_json=True, **options)

    def input(self, name, array, datatype=None, binary=True):
        one = self.types.InferInput(name, list(array.shape), datatype or np_to_triton_dtype(array.dtype))
        if self.is_http:
            one.set_data_from_numpy(array, binary_data=binary)
        else:
            one.set_data_from_numpy(array)
        return one

    def output(self, name, binary=True, classes=0):
        if self.is_http:
            return self.types.InferRequestedOutput(name, binary_data=binary, class_count=classes)
        return self.types.InferRequestedOutput(name, class_count=classes)

    def infer(self, model, arrays, outputs=None, binary=True, **options):
        """Runs `arrays` (name → numpy array) through a model."""
        inputs = [self.input(name, array, binary=binary) for name, array in arrays.items()]
        wanted = None if outputs is None else [o if not isinstance(o, str) else self.output(o, binary) for o in outputs]
        return self.call("infer", model, inputs, outputs=wanted, **options)

    def response(self, result):
        """The response head as a JSON object."""
        return result.get_response() if self.is_http else result.get_response(as_json=True)

    def parameter(self, result, name):
        """A response parameter, whatever its type; None when it is not there."""
        if self.is_http:
            return result.get_response().get("parameters", {}).get(name)
        values = result.get_response().parameters
        return getattr(values[name], values[name].WhichOneof("parameter_choice")) if name in values else None

    def close(self):
        if self.is_aio:
            self.loop.run_until_complete(self.raw.close())
            self.loop.close()
        else:
            self.raw.close()


def connect(kind, server):
    return Client(kind, server.http if kind.startswith("http") else server.grpc)


def ints(*values):
    return np.array([values], dtype=np.int32)


SIXTEEN = np.arange(16, dtype=np.int32).reshape(1, 16)


def failure(run):
    """(message, status) of the InferenceServerException that `run` must raise."""
    try:
        run()
    except InferenceServerException as e:
        return e.message(), e.status()
    raise AssertionError("expected an InferenceServerException")


def check_failure(client, run, text, http, grpc):
    """`text` must be the whole message; the status is that of the transport in use."""
    message, status = failure(run)
    assert message == text
    assert status == (str(http) if client.is_http else f"StatusCode.{grpc}")
