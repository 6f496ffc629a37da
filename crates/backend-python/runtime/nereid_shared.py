"""Shared code of our Python backends: reads a model's configuration and runs the requests of a batch together. Imported
by its plain name, from beside our own modules. Needs numpy only."""
import importlib
import json
import os
import platform
import sys

import numpy as np

import triton_python_backend_utils as pb_utils
from nereid_runner.run import Violation


class LoadError(Violation):
    """Why a model does not load. The user sees the text unchanged: without its type and without our stack frames."""


class _Missing(LoadError, ModuleNotFoundError):
    """A framework's package is missing. The server adds the command that installs it."""


class RequestError(Exception):
    """Why requests of a batch failed, with a code; the client sees the text unchanged."""

    def __init__(self, message, code="INTERNAL"):
        super().__init__(message)
        self.code = code


def framework(module, title, model):
    """Imports the user's package of a framework. Raises `LoadError`."""
    python = f"{sys.executable} (Python {platform.python_version()})"
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise LoadError(f"failed to load model '{model.name}': import of {module} in {python}: {error}") from error
        found = None
    except Exception as error:
        raise LoadError(f"failed to load model '{model.name}': import of {module} in {python}: {type(error).__name__}: "
            f"{error}") from error
    # Without a file it is a directory of that name: the one of our own backend, which is on the search path too.
    if getattr(found, "__file__", None) is not None:
        return found
    text = (
        f"failed to load model '{model.name}': its backend needs {title}, and {python} has no module '{module}'. "
        "Another interpreter is named by NEREID_PYTHON or by --backend-config=python,python-executable=PATH"
    )
    raise _Missing(text, name=module)


def gpu_of(args, model, why, package):
    """True if an instance is on a GPU. If `why` not: a configured group fails, the server's group is on the CPU."""
    if why is None:
        return True
    group = args["model_instance_name"].rpartition("_")[0]
    if group != model.name:
        raise LoadError(
            f"instance group {group} of model {model.name} has kind KIND_GPU but {why}; "
            f"install a {package} with CUDA there, or serve it on the CPU: "
            "instance_group [ { kind: KIND_CPU } ]"
        )
    # The server's default group: only it has the name of the model.
    pb_utils.Logger.log_warn(f"model '{model.name}' is served on the CPU: {why}")
    return False


class Model:
    """A model's configuration, from the arguments of `initialize`."""

    def __init__(self, args):
        self.config = json.loads(args["model_config"])
        self.name = args["model_name"]
        self.directory = args["model_repository"]
        self.version_directory = f"{self.directory}/{args['model_version']}"
        self.max_batch_size = self.config["max_batch_size"]
        self.inputs = [tensor["name"] for tensor in self.config["input"]]
        self.outputs = {tensor["name"]: _numpy_type(tensor["data_type"]) for tensor in self.config["output"]}

    @classmethod
    def to_complete(cls, config, default):
        """The model of a `ModelConfig` in `auto_complete_config`; `default` is its default file name."""
        model = cls({"model_config": json.dumps(config.as_dict()), "model_name": config.as_dict()["name"],
            "model_repository": "", "model_version": ""})
        # The directory of the file, which may be below the version's.
        depth = os.path.normpath(model.config["default_model_filename"] or default).count("/")
        model.version_directory = os.path.normpath(os.path.join(pb_utils.get_model_dir(), *[".."] * depth))
        return model

    def tensors(self):
        """The model's own inputs and outputs: configured ones, sequence controls and states, as dictionaries."""
        sequences = self.config.get("sequence_batching", {})
        inputs, outputs = list(self.config["input"]), list(self.config["output"])
        for control in sequences.get("control_input", []):
            inputs.append({"name": control["name"], "data_type": _type_of_control(control["control"][0]), "dims": [1]})
        for state in sequences.get("state", []):
            inputs.append({"name": state["input_name"], "data_type": state["data_type"], "dims": state["dims"]})
            outputs.append({"name": state["output_name"], "data_type": state["data_type"], "dims": state["dims"]})
        return inputs, outputs

    def parameter(self, key, default=None):
        found = self.config.get("parameters", {}).get(key)
        return default if found is None else found["string_value"]

    def flag(self, key, default=False):
        """A parameter that is true or false; rejects other values."""
        text = self.parameter(key)
        if text is None:
            return default
        if text.lower() not in ("true", "on", "1", "false", "off", "0"):
            raise LoadError(f"failed to convert '{text}' to boolean: parameter '{key}' of model '{self.name}' must be "
                f"true or false")
        return text.lower() in ("true", "on", "1")

    def number(self, key, default=0, least=None):
        """A parameter that is an integer, at least `least`."""
        text = self.parameter(key)
        try:
            number = default if text is None else int(text)
        except ValueError:
            raise LoadError(f"parameter '{key}' of model '{self.name}' must be a whole number, not '{text}'") from None
        if text is not None and least is not None and number < least:
            raise LoadError(f"parameter '{key}' of model '{self.name}' must be at least {least}, not {number}")
        return number

    def file(self, default):
        """Path of the model's file in the version's directory: as configured, or `default`."""
        return f"{self.version_directory}/{self.config['default_model_filename'] or default}"

    def instances(self, kind):
        """Number of instances in all groups of a kind."""
        return sum(group.get("count", 1) for group in self.config.get("instance_group", []) if group.get("kind") ==
            kind)


def dims_of(tensor):
    """The shape that the model sees, without the batch dimension."""
    return tensor["reshape"].get("shape", []) if "reshape" in tensor else tensor["dims"]


def _type_of_control(control):
    """The datatype of a sequence control, as the server sends it."""
    if control.get("int32_false_true"):
        return "TYPE_INT32"
    if control.get("fp32_false_true"):
        return "TYPE_FP32"
    if control.get("bool_false_true"):
        return "TYPE_BOOL"
    return control.get("data_type", "TYPE_UINT64")


def _numpy_type(data_type):
    try:
        return pb_utils.triton_string_to_numpy(data_type)
    except KeyError:
        # BF16 without ml_dtypes.
        return None


class Arrays:
    """Converts between tensors and numpy arrays. A framework with arrays of its own has a class like this."""

    #: True if the model runs again before its outputs are sent: memory that the next run overwrites must be copied.
    runs_again = False

    def __init__(self, model):
        self._types = model.outputs

    def read(self, tensor):
        return tensor.as_numpy()

    def join(self, arrays):
        return np.concatenate(arrays)

    def finish(self, name, array):
        """An output of a run, with `len` and slices by rows; called for requested outputs."""
        return np.asarray(array, dtype=self._types.get(name))

    def write(self, name, array):
        return pb_utils.Tensor(name, array)


def run_together(model, requests, run, arrays=None):
    """Runs the requests of a batch at once and answers each with its rows. `run` maps arrays by input name to arrays by
    output name. Requests run one by one if their shapes differ beyond the first dimension or the model does not batch.
    An exception answers the requests that ran together."""
    arrays = Arrays(model) if arrays is None else arrays
    responses = [None] * len(requests)
    inputs = {}
    for i, request in enumerate(requests):
        try:
            inputs[i] = {tensor.name(): arrays.read(tensor) for tensor in request.inputs()}
        except Exception as error:
            responses[i] = _failure(error)
    groups = _groups(model, requests, list(inputs))
    for at, group in enumerate(groups):
        arrays.runs_again = at + 1 < len(groups)
        # Popped, so that the memory of a group's requests is free while the next group runs.
        parts = [inputs.pop(i) for i in group]
        try:
            rows = [_rows(requests[i]) for i in group] if model.max_batch_size > 0 else None
            together = parts[0] if len(parts) == 1 else {name: arrays.join([part[name] for part in parts])
                for name in parts[0]}
            del parts
            made = _answers(model, requests, group, rows, run(together), arrays)
        except Exception as error:  # One batch must not end the others.
            made = [_failure(error)] * len(group)
        for i, response in zip(group, made):
            responses[i] = response
    return responses


def _groups(model, requests, indices):
    if len(indices) > 1 and model.max_batch_size > 0:
        kinds = {tuple(sorted((tensor.name(), *tensor.shape()[1:]) for tensor in requests[i].inputs()))
            for i in indices}
        if len(kinds) == 1:
            return [indices]
    return [[i] for i in indices]


def _rows(request):
    tensors = request.inputs()
    return tensors[0].shape()[0] if tensors else 0


def _wanted(request, model, outputs):
    """Names of the outputs of a response. Outputs that are not configured are states, which the server keeps."""
    names = request.requested_output_names()
    return [name for name in outputs if not names or name in names or name not in model.outputs]


def _answers(model, requests, group, rows, outputs, arrays):
    """The responses of a group. `rows` per request; None without a batch dimension, for a single request."""
    wanted = [_wanted(requests[i], model, outputs) for i in group]
    whole = {name: arrays.finish(name, array) for name, array in outputs.items()
        if any(name in names for names in wanted)}
    total = None if rows is None else sum(rows)
    for name, array in whole.items():
        if total and len(array) != total:
            # Triton's text, although Triton returns it only if rows are missing.
            text = (f"failed to split the output tensor '{name}' in responses: expected batch size of at least {total} "
                f"in model output, got {len(array)}")
            raise RequestError(text, "UNSUPPORTED")
    responses = []
    at = 0
    for position, names in enumerate(wanted):
        parts = whole
        if len(group) > 1:
            to = at + rows[position]
            parts = {name: array[at:to] for name, array in whole.items()}
            at = to
        tensors = [arrays.write(name, part) for name, part in parts.items() if name in names]
        responses.append(pb_utils.InferenceResponse(tensors))
    return responses


def _failure(error):
    if isinstance(error, RequestError):
        code = getattr(pb_utils.TritonError, error.code)
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), code))
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))
