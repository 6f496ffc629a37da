"""Loads a model as the server does on a machine with GPUs, with a torch that cannot use them: `python pytorch_devices.py REPOSITORY-OF-ONE-MODEL`. Prints JSON."""
import json
import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../crates/backend-python"))
sys.path[:0] = [f"{ROOT}/runtime", f"{ROOT}/backends", f"{ROOT}/backends/pytorch"]

import numpy as np
import torch
from nereid_runner.harness import Model

torch.cuda.is_available = lambda: False


def tensor(name):
    return {"name": name, "data_type": "TYPE_FP32", "dims": [-1]}


control = {"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [], "fp32_false_true": [0, 1], "bool_false_true": []}
config = {
    "max_batch_size": 4, "default_model_filename": "model.pt", "input": [tensor("INPUT__0")], "output": [tensor("OUTPUT__0")], "instance_group": [],
    "sequence_batching": {"control_input": [{"name": "START__1", "control": [control]}]},
}  # fmt: skip


def load(instance):
    arguments = {"model_repository": sys.argv[1], "model_instance_kind": "GPU", "model_instance_name": instance}
    return Model(f"{ROOT}/backends/pytorch/model.py", config, name="m", arguments=arguments)


told = {}
try:
    load("m_0_0")
except Exception as error:
    told["asked"] = str(error)
with load("m_0") as model:
    told["warned"] = [text for level, _, _, text in model.log_lines if level == "WARNING"]
    told["answer"] = model.infer({"INPUT__0": np.array([[5, 6]], np.float32), "START__1": np.array([[1]], np.float32)})["OUTPUT__0"].tolist()
print(json.dumps(told))
