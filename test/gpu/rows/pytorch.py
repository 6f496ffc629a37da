"""PyTorch on devices: its models, its tensors in Python models, and clients whose tensors are PyTorch's. Rows of backends-native.md §4 and of memory.md §2."""
import os
import subprocess
import sys

from context import NotRun, placed

from . import row

WIDTH = 256
CONFIG = """backend: "pytorch"
max_batch_size: 8
input [ { name: "INPUT__0" data_type: TYPE_FP32 dims: [ 256 ] } ]
output [ { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 256 ] } ]
instance_group [ { kind: KIND_GPU } ]
"""
CLASS = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(256, 256)
        self.second = torch.nn.Linear(256, 256)

    def forward(self, x):
        return torch.tanh(self.second(torch.relu(self.first(x))))
"""
# Compiles the network of CLASS for this device, with the weights of a file, and runs the package once.
PACKAGE = """
import sys

weights, path = sys.argv[1:]
module = Net().eval().cuda()
module.load_state_dict(torch.load(weights))
example = torch.zeros(2, 256).cuda()
program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("rows", min=1, max=8)},))
torch._inductor.aoti_compile_and_package(program, package_path=path)
torch._inductor.aoti_load_package(path)(example)
"""
TORCH_SECONDS_MAX = 75
PYTHON_CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_GPU } ]
parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }
"""
# As the documentation of Triton's Python backend has it: torch takes the input without a copy and gives its result back without one.
PYTHON = """
import torch
import triton_python_backend_utils as pb
from torch.utils.dlpack import from_dlpack, to_dlpack


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = from_dlpack(pb.get_input_tensor_by_name(request, "IN").to_dlpack())
            made = pb.Tensor.from_dlpack("OUT", to_dlpack(2 * x + 1))
            answers.append(pb.InferenceResponse([made], parameters={"device": str(x.device)}))
        return answers
"""


def write(t, name, config, files):
    """A model in the row's own repository, which `server` serves."""
    directory = os.path.join(t.directory, "torch", name)
    os.makedirs(os.path.join(directory, "1"), exist_ok=True)
    with open(os.path.join(directory, "config.pbtxt"), "w") as out:
        out.write(config)
    for file, text in files.items():
        with open(os.path.join(directory, "1", file), "w") as out:
            out.write(text)
    return os.path.join(directory, "1")


def server(t, *names):
    return t.server(*names, flags=[f"--model-repository={t.directory}/torch", f"--backend-config=python,python-executable={sys.executable}"])


def network():
    """The class of CLASS on the device, with weights from a seed."""
    import torch

    torch.manual_seed(7)
    names = {}
    exec(CLASS, names)  # noqa: S102 - a text of this file
    return names["Net"]().eval().cuda()


def compare(t, one, module, name):
    """Batches over the network and in CUDA shared memory, beside what torch itself says on this device."""
    import numpy as np
    import torch
    from tritonclient.utils import cuda_shared_memory as cuda

    random, worst = np.random.default_rng(3), 0.0
    client = t.client("grpc", one)
    given, made = (t.region(client, part, 8 * WIDTH * 4) for part in ("given", "made"))
    for rows in (1, 3, 8):
        values = random.standard_normal((rows, WIDTH), dtype=np.float32)
        with torch.no_grad():
            wanted = module(torch.from_numpy(values).cuda()).cpu().numpy()
        found = [client.infer(name, {"INPUT__0": values}).as_numpy("OUTPUT__0")]
        cuda.set_shared_memory_region(given, [values])
        inputs = [placed(client, "in", "INPUT__0", [rows, WIDTH], "FP32", "given", values.nbytes)]
        client.call("infer", name, inputs, outputs=[placed(client, "out", "OUTPUT__0", None, None, "made", values.nbytes)])
        found.append(cuda.get_contents_as_numpy(made, np.float32, [8, WIDTH])[:rows])
        worst = max([worst, *[float(np.abs(got - wanted).max()) for got in found]])
    assert worst < 1e-2, f"answers differ by {worst} from torch's own"
    return f"at most {worst:.2g} from torch {torch.__version__} itself"


@row("pytorch-script")
def pytorch_script(t):
    """TorchScript that was saved on the CPU, on each device (KIND_GPU)."""
    import torch

    module = network()
    torch.jit.trace(module.cpu(), torch.zeros(1, WIDTH)).save(os.path.join(write(t, "scripted", CONFIG, {}), "model.pt"))
    return compare(t, server(t, "scripted"), module.cuda(), "scripted")


@row("pytorch-class")
def pytorch_class(t):
    """A class with its weights, as it is and by torch.compile."""
    import torch

    module = network()
    compiled = CONFIG + 'parameters { key: "TORCH_COMPILE_OPTIONAL_PARAMETERS" value { string_value: "{\\"dynamic\\": true}" } }\n'
    for name, config in (("plain", CONFIG), ("compiled", compiled)):
        torch.save(module.state_dict(), os.path.join(write(t, name, config, {"model.py": CLASS}), "model.pt"))
    one = server(t, "plain", "compiled")
    compare(t, one, module, "plain")
    for region in ("given", "made"):
        one.request("POST", f"/v2/cudasharedmemory/region/{region}/unregister", b"{}")
    return compare(t, one, module, "compiled")


@row("pytorch-package")
def pytorch_package(t):
    """What AOT-Inductor compiled for this device."""
    import torch

    module = network()
    path = os.path.join(write(t, "packaged", CONFIG + 'default_model_filename: "model.pt2"\n', {}), "model.pt2")
    weights = os.path.join(t.directory, "weights.pt")
    torch.save(module.state_dict(), weights)
    # In a process of its own: torch's compiler and loader have crashed on such a machine, and hung on another one.
    command = [sys.executable, "-c", f"{CLASS}\n{PACKAGE}", weights, path]
    try:
        torch_itself = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TORCH_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise NotRun(f"torch {torch.__version__} itself did not compile and load a package here within {TORCH_SECONDS_MAX} s") from None
    if torch_itself.returncode != 0:
        raise NotRun(f"torch {torch.__version__} itself cannot load what it compiled here: it ended with {torch_itself.returncode}: {torch_itself.stderr.strip()[-120:]}")
    return compare(t, server(t, "packaged"), module, "packaged")


@row("python-torch")
def python_torch(t):
    """The tensor that torch computed on the device leaves by its capsule; it is read where torch left it, when torch is done with it."""
    import numpy as np
    from tritonclient.utils import cuda_shared_memory as cuda

    write(t, "double", PYTHON_CONFIG, {"model.py": PYTHON})
    client = t.client("grpc", server(t, "double"))
    count = 4 << 20
    given, made = (t.region(client, part, 4 * count) for part in ("given", "made"))
    for turn in range(20):
        values = np.arange(turn, turn + count, dtype=np.float32)
        cuda.set_shared_memory_region(given, [values])
        inputs = [placed(client, "in", "IN", [count], "FP32", "given", values.nbytes)]
        answer = client.call("infer", "double", inputs, outputs=[placed(client, "out", "OUT", None, None, "made", values.nbytes)])
        assert client.parameter(answer, "device") == "cuda:0", client.parameter(answer, "device")
        assert np.array_equal(cuda.get_contents_as_numpy(made, np.float32, [count]), 2 * values + 1), f"turn {turn}: the client's region holds something else"
    assert np.array_equal(client.infer("double", {"IN": values}).as_numpy("OUT"), 2 * values + 1), "something else came over the network"


@row("shm-torch")
def shm_torch(t):
    """A client whose tensors are torch's: written into a region and read out of it by DLPack, without the host."""
    import torch
    from tritonclient.utils import cuda_shared_memory as cuda

    client = t.client("grpc", t.server("same_gpu"))
    values = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    given, made = (t.region(client, part, 4 << 20) for part in ("given", "made"))
    cuda.set_shared_memory_region_from_dlpack(given, [values])
    inputs = [placed(client, "in", "INPUT0", [1 << 20], "FP32", "given", 4 << 20)]
    client.call("infer", "same_gpu", inputs, outputs=[placed(client, "out", "OUTPUT0", None, None, "made", 4 << 20)])
    found = torch.from_dlpack(cuda.as_shared_memory_tensor(made, "FP32", [1 << 20]))
    assert found.is_cuda and torch.equal(found, values), "the output is not the input"
