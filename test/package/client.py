"""Asks the models `simple` and `python_adds` over HTTP and gRPC, with tritonclient: `client.py HTTP_ADDRESS GRPC_ADDRESS`. Ends with 1 for a wrong answer."""

import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http


def ask(module, url):
    client = module.InferenceServerClient(url)
    assert client.is_server_ready()
    ones = [module.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for i, tensor in enumerate(ones):
        tensor.set_data_from_numpy(np.full((1, 16), i + 1, np.int32))
    answer = client.infer("simple", ones)
    assert (answer.as_numpy("OUTPUT0") == 3).all() and (answer.as_numpy("OUTPUT1") == -1).all(), answer.get_response()
    tensor = module.InferInput("IN", [3], "FP32")
    tensor.set_data_from_numpy(np.array([1, 2, 3], np.float32))
    answer = client.infer("python_adds", [tensor])
    assert answer.as_numpy("OUT").tolist() == [2, 3, 4], answer.get_response()
    client.close()


def ask_both(http, grpc):
    ask(tritonclient.http, http)
    ask(tritonclient.grpc, grpc)


if __name__ == "__main__":
    ask_both(*sys.argv[1:])
