"""The module that model.py files import as `pb_utils` (B-PY-01). Needs no server: see `nereid_runner.harness`."""
import struct

import numpy as np
from nereid_runner.control import get_model_dir, is_model_ready, load_model, unload_model
from nereid_runner.kinds import MemoryType, TritonModelException
from nereid_runner.logger import Logger
from nereid_runner.metrics import MetricFamily
from nereid_runner.model_config import ModelConfig
from nereid_runner.request import InferenceRequest, PreferredMemory
from nereid_runner.response import InferenceResponse, TritonError
from nereid_runner.tensor import NUMPY_TYPES, Tensor

TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU
TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

TRITON_STRING_TO_NUMPY = {**NUMPY_TYPES, "TYPE_BOOL": bool}
_CODE_TO_NUMPY = dict(enumerate(NUMPY_TYPES.values(), 1))
_NUMPY_TO_CODE = {kind: code for code, kind in _CODE_TO_NUMPY.items()}
_NUMPY_TO_CODE[np.bytes_] = 13


def triton_string_to_numpy(triton_type_string):
    """The numpy type of a `data_type`. BF16 without the package ml_dtypes is a KeyError, as in Triton."""
    if triton_type_string == "TYPE_BF16":
        try:
            from ml_dtypes import bfloat16

            return bfloat16
        except ImportError:
            pass
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type):
    """The numpy type of a datatype's number, or None."""
    return _CODE_TO_NUMPY.get(data_type)


def numpy_to_triton_type(data_type):
    """The number of a numpy type, or None."""
    if isinstance(data_type, np.dtype):
        return next((code for kind, code in _NUMPY_TO_CODE.items() if data_type == kind), None)
    return _NUMPY_TO_CODE.get(data_type)


def serialize_byte_tensor(input_tensor):
    """Elements of bytes, str or objects, each after its length, as `bytes`. Other arrays: None; empty ones: ()."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype != np.object_ and input_tensor.dtype.type != np.bytes_:
        return None
    from nereid_runner import strings

    return strings.encode_items(input_tensor.ravel().tolist())


def deserialize_bytes_tensor(encoded_tensor):
    """The elements, as an array of `bytes` with one dimension."""
    found = []
    at = 0
    while at < len(encoded_tensor):
        length = struct.unpack_from("<I", encoded_tensor, at)[0]
        at += 4
        found.append(struct.unpack_from(f"<{length}s", encoded_tensor, at)[0])
        at += length
    return np.array(found, dtype=np.object_)


def get_input_tensor_by_name(inference_request, name):
    """The first input with that name, or None."""
    for tensor in inference_request.inputs():
        if tensor.name() == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response, name):
    """The first output with that name, or None."""
    for tensor in inference_response.output_tensors():
        if tensor.name() == name:
            return tensor
    return None


def _named(model_config, kind, name):
    if kind in model_config:
        for properties in model_config[kind]:
            if properties["name"] == name:
                return properties
    return None


def get_input_config_by_name(model_config, name):
    """An input of a parsed configuration, or None."""
    return _named(model_config, "input", name)


def get_output_config_by_name(model_config, name):
    """An output of a parsed configuration, or None."""
    return _named(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config):
    """True if a parsed configuration is decoupled."""
    if "model_transaction_policy" not in model_config:
        return False
    return model_config["model_transaction_policy"]["decoupled"]
