"""Models in Python whose tensors lie on a device. Rows of backends-python.md 14.6."""
import os
import sys

import place
from context import placed

from . import row

COUNT = 1 << 20
CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }
"""
# Opens what it got, and gives it back as another library would: by its capsule.
MODEL = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            tensor = request.inputs()[0]
            kind, device = tensor.__dlpack_device__()
            made = pb.Tensor.from_dlpack("OUT", tensor.to_dlpack())
            answers.append(pb.InferenceResponse([made], parameters={"kind": kind, "device": device, "is_cpu": tensor.is_cpu()}))
        return answers
"""


@row("python-device")
def python_device(t):
    import numpy as np
    from tritonclient.utils import cuda_shared_memory as cuda

    directory = os.path.join(place.MODELS, "python_device")
    os.makedirs(os.path.join(directory, "1"), exist_ok=True)
    for name, text in (("config.pbtxt", CONFIG), ("1/model.py", MODEL)):
        with open(os.path.join(directory, name), "w") as file:
            file.write(text)
    server = t.server("python_device", flags=(f"--backend-config=python,python-executable={sys.executable}",))
    client = t.client("grpc", server)
    values = np.arange(COUNT, dtype=np.float32)
    given, made = (t.region(client, name, values.nbytes) for name in ("given", "made"))
    cuda.set_shared_memory_region(given, [values])
    inputs = [placed(client, "in", "IN", [COUNT], "FP32", "given", values.nbytes)]
    answer = client.call("infer", "python_device", inputs, outputs=[placed(client, "out", "OUT", None, None, "made", values.nbytes)])
    where = [client.parameter(answer, name) for name in ("kind", "device", "is_cpu")]
    assert where == [2, 0, False], f"the input lies at {where}"
    assert np.array_equal(cuda.get_contents_as_numpy(made, np.float32, [COUNT]), values), "the client's region holds something else"
    answer = client.call("infer", "python_device", inputs)
    assert np.array_equal(answer.as_numpy("OUT"), values), "something else came over the network"
