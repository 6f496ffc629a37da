"""KServe's own client against a server: `sdk.py HTTP_URL GRPC_ADDRESS`. Prints a line of JSON for each step: its name, and what was wrong or null."""
import asyncio
import json
import sys
from contextlib import contextmanager
from importlib.metadata import version

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

# Its client reads the body of health as JSON, and asks for none in particular.
HEALTH = {"Accept": "application/json"}
A, B = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)


@contextmanager
def step(name):
    wrong = None
    try:
        yield
    except Exception as e:  # noqa: BLE001 - what a step raises is its result
        wrong = f"{type(e).__name__}: {e}"[:400]
    print(json.dumps({"name": name, "wrong": wrong}), flush=True)


def simple(binary, model="simple", **options):
    inputs = []
    for name, values in (("INPUT0", A), ("INPUT1", B)):
        one = InferInput(name, list(values.shape), "INT32")
        one.set_data_from_numpy(values, binary_data=binary)
        inputs.append(one)
    return InferRequest(model_name=model, infer_inputs=inputs, request_id="seven", **options)


def check(response):
    found = {output.name: output.as_numpy() for output in response.outputs}
    assert np.array_equal(found["OUTPUT0"].reshape(1, 16), A + B) and np.array_equal(found["OUTPUT1"].reshape(1, 16), A - B), found
    assert response.id == "seven" and response.model_name == "simple", (response.id, response.model_name)


async def failure(call):
    try:
        await call
    except Exception as e:  # noqa: BLE001
        return str(e)
    raise AssertionError("it did not fail")


async def main(http, grpc):
    rest = InferenceRESTClient(RESTConfig(protocol="v2"))
    with step("HTTP: live, ready, and a model that is ready"):
        assert await rest.is_server_live(http, headers=HEALTH) is True
        assert await rest.is_server_ready(http, headers=HEALTH) is True
        assert await rest.is_model_ready(http, "simple", headers=HEALTH) is True
    with step("HTTP: a model that is not there is not ready"):
        assert await rest.is_model_ready(http, "nobody", headers=HEALTH) is False
    for binary in (False, True):
        with step(f"HTTP: infer, {'binary' if binary else 'JSON'} inputs"):
            check(await rest.infer(http, simple(binary), model_name="simple"))
    with step("HTTP: infer with binary outputs"):
        outputs = [RequestedOutput("OUTPUT0", parameters={"binary_data": True}), RequestedOutput("OUTPUT1")]
        check(await rest.infer(http, simple(True, request_outputs=outputs), model_name="simple"))
    with step("HTTP: a request as a dictionary"):
        tensor = lambda name, values: {"name": name, "shape": [1, 16], "datatype": "INT32", "data": values.ravel().tolist()}  # noqa: E731
        check(await rest.infer(http, {"id": "seven", "inputs": [tensor("INPUT0", A), tensor("INPUT1", B)]}, model_name="simple"))
    with step("HTTP: an error has its text"):
        assert "nobody" in await failure(rest.infer(http, simple(False, model="nobody"), model_name="nobody"))
    await rest.close()

    client = InferenceGRPCClient(grpc)
    with step("gRPC: live, ready, and a model that is ready"):
        assert await client.is_server_live() is True
        assert await client.is_server_ready() is True
        assert await client.is_model_ready("simple") is True
    for binary in (False, True):
        with step(f"gRPC: infer, {'raw' if binary else 'typed'} contents"):
            check(await client.infer(simple(binary)))
    with step("gRPC: an error has its text"):
        assert "nobody" in await failure(client.infer(simple(False, model="nobody")))
    await client.close()


print(json.dumps({"version": version("kserve")}), flush=True)
asyncio.run(main(*sys.argv[1:]))
