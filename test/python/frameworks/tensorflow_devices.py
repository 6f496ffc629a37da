"""Loads a model as the server does on a machine with GPUs, with a TensorFlow that cannot use them: `python tensorflow_devices.py REPOSITORY-OF-ONE-MODEL`. Prints JSON."""
import json
import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../crates/backend-python"))
sys.path[:0] = [f"{ROOT}/runtime", f"{ROOT}/backends", f"{ROOT}/backends/tensorflow"]

import numpy as np
import tensorflow as tf
from nereid_runner.harness import Model


def tensor(name):
    return {"name": name, "data_type": "TYPE_FP32", "dims": [-1]}


control = {"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [], "fp32_false_true": [0, 1], "bool_false_true": []}
config = {
    "max_batch_size": 4, "default_model_filename": "model.savedmodel", "platform": "tensorflow_savedmodel", "input": [tensor("A")], "output": [tensor("SUM")],
    "instance_group": [], "optimization": {"graph": {"level": 1}}, "sequence_batching": {"control_input": [{"name": "B", "control": [control]}]},
}  # fmt: skip


def load(instance):
    arguments = {"model_repository": sys.argv[1], "model_instance_kind": "GPU", "model_instance_name": instance, "model_instance_device_id": "1"}
    return Model(f"{ROOT}/backends/tensorflow/model.py", config, name="m", arguments=arguments)


told = {}
tf.config.list_physical_devices = lambda kind: ["one"]
try:
    load("m_0_1")
except Exception as error:
    told["asked"] = str(error)
with load("m_1") as model:
    told["warned"] = [text for level, _, _, text in model.log_lines if level == "WARNING"]
    told["answer"] = model.infer({"A": np.array([[5, 6]], np.float32), "B": np.array([[1]], np.float32)})["SUM"].tolist()
# What a session is told where there are two.
tf.config.list_physical_devices = lambda kind: ["one", "two"]
made = []
tf.compat.v1.Session = lambda graph, config: made.append(config) or sys.exit("as far as it goes without a GPU")
try:
    load("m_1")
except SystemExit:
    pass
told["seen"], told["grows"] = made[0].gpu_options.visible_device_list, made[0].gpu_options.allow_growth
told["xla"] = made[0].graph_options.optimizer_options.global_jit_level
print(json.dumps(told))
