"""Sends the same requests to the two servers at the given addresses, and compares what they answer."""

import sys

import numpy as np
import tritonclient.http as triton

clients = [triton.InferenceServerClient(address) for address in sys.argv[1:3]]
data = np.load("test.npz")


def ask(client, pixels):
    rows = triton.InferInput("PIXELS", list(pixels.shape), "FP32").set_data_from_numpy(pixels)
    try:
        answer = client.infer("digits", [rows])
    except triton.InferenceServerException as error:
        return str(error)
    return [(name, (array := answer.as_numpy(name)).dtype.str, array.shape, array.tobytes()) for name in ("SCORES", "DIGIT")]


def same(what, a, b):
    print(f"{what}:", "equal" if a == b else f"{a} and {b}")


requests = [data["pixels"][i : i + 30] for i in range(0, len(data["pixels"]), 30)]
answers = [[ask(client, pixels) for pixels in requests] for client in clients]
assert not any(isinstance(answer, str) for answer in answers[0]), answers[0]
same(f"{len(data['pixels'])} rows in {len(requests)} requests", *answers)
same("metadata", *(client.get_model_metadata("digits") for client in clients))
same("error of the model", *(ask(client, np.full((1, 64), 17, np.float32)) for client in clients))
same("error for 33 rows", *(ask(client, np.zeros((33, 64), np.float32)) for client in clients))
same("error for 63 pixels", *(ask(client, np.zeros((1, 63), np.float32)) for client in clients))
