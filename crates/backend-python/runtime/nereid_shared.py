"""What our backends that are written in Python share: reading a model's configuration, and running the requests of a batch together.

Imported by plain name, from beside our own modules. Needs numpy only.
"""
import importlib
import json
import os
import platform
import sys

import numpy as np

import triton_python_backend_utils as pb_utils
from nereid_runner.run import Violation


class LoadError(Violation):
    """Why a model does not load. The text is for the user as it is: no type in front, no frames of ours behind."""


class _Missing(LoadError, ModuleNotFoundError):
    """The package of a framework is not there. The server adds the command that gets it."""


class RequestError(Exception):
    """Why requests of a batch failed, with a code; the text is for the client as it is."""

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
        raise LoadError(f"failed to load model '{model.name}': import of {module} in {python}: {type(error).__name__}: {error}") from error
    # Without a file it is a directory of that name: the one of our own backend, which is searched too.
    if getattr(found, "__file__", None) is not None:
        return found
    text = (
        f"failed to load model '{model.name}': its backend needs {title}, and {python} has no module '{module}'. "
        "Another interpreter is named by NEREID_PYTHON or by --backend-config=python,python-executable=PATH"
    )
    raise _Missing(text, name=module)


def gpu_of(args, model, why, package):
    """Whether an instance of a group on a GPU is there. `why` it cannot be, or None: then a group that the configuration has fails the load, and that of the server is on the CPU."""
    if why is None:
        return True
    group = args["model_instance_name"].rpartition("_")[0]
    if group != model.name:
        raise LoadError(
            f"instance group {group} of model {model.name} has kind KIND_GPU but {why}; install a {package} with CUDA there, or serve it on the CPU: "
            "instance_group [ { kind: KIND_CPU } ]"
        )
    # The group that the server made, since the configuration has none: only it is called as the model.
    pb_utils.Logger.log_warn(f"model '{model.name}' is served on the CPU: {why}")
    return False


class Model:
    """A model's configuration, as `initialize` is told of it."""

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
        """The model of a `ModelConfig`, as `auto_complete_config` gets it, whose file is called `default` unless it says otherwise."""
        model = cls({"model_config": json.dumps(config.as_dict()), "model_name": config.as_dict()["name"], "model_repository": "", "model_version": ""})
        # The directory of the file, which may be one below the version's.
        depth = os.path.normpath(model.config["default_model_filename"] or default).count("/")
        model.version_directory = os.path.normpath(os.path.join(pb_utils.get_model_dir(), *[".."] * depth))
        return model

    def tensors(self):
        """Inputs and outputs that the model itself has: those of the configuration, controls of sequences, and states. Dictionaries as in the configuration."""
        sequences = self.config.get("sequence_batching", {})
        inputs, outputs = list(self.config["input"]), list(self.config["output"])
        for control in sequences.get("control_input", []):
            inputs.append({"name": control["name"], "data_type": _type_of_control(control["control"][0]), "dims": [1]})
        for state in sequences.get("state", []):
            inputs.append({"name": state["input_name"], "data_type": state["data_type"], "dims": state["dims"]})
            outputs.append({"name": state["output_name"], "data_type": state["data_type"], "dims": state["dims"]})
        return inputs, outputs

    def parameter(self, key, default=None):
        """The text of a parameter of the configuration."""
        found = self.config.get("parameters", {}).get(key)
        return default if found is None else found["string_value"]

    def flag(self, key, default=False):
        """A parameter that is true or false; refuses anything else."""
        text = self.parameter(key)
        if text is None:
            return default
        if text.lower() not in ("true", "on", "1", "false", "off", "0"):
            raise LoadError(f"failed to convert '{text}' to boolean: parameter '{key}' of model '{self.name}' must be true or false")
        return text.lower() in ("true", "on", "1")

    def number(self, key, default=0, least=None):
        """A parameter that is a whole number, of at least `least`."""
        text = self.parameter(key)
        try:
            number = default if text is None else int(text)
        except ValueError:
            raise LoadError(f"parameter '{key}' of model '{self.name}' must be a whole number, not '{text}'") from None
        if text is not None and least is not None and number < least:
            raise LoadError(f"parameter '{key}' of model '{self.name}' must be at least {least}, not {number}")
        return number

    def file(self, default):
        """Path of the model's file: as configured, or `default`, in the version's directory."""
        return f"{self.version_directory}/{self.config['default_model_filename'] or default}"

    def instances(self, kind):
        """How many instances the groups of a kind have together."""
        return sum(group.get("count", 1) for group in self.config.get("instance_group", []) if group.get("kind") == kind)


def dims_of(tensor):
    """The shape that the model sees, without the batch dimension."""
    return tensor["reshape"].get("shape", []) if "reshape" in tensor else tensor["dims"]


def _type_of_control(control):
    """The datatype of a control input of sequences, as the server makes it."""
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
        # BF16, without the package that has it.
        return None


class Arrays:
    """How tensors of requests become arrays of numpy, and arrays tensors of responses. A framework with arrays of its own has a class like this."""

    #: Whether the model runs again before the outputs at hand are sent: memory that its next run writes into has to be copied.
    runs_again = False

    def __init__(self, model):
        self._types = model.outputs

    def read(self, tensor):
        """The array of an input."""
        return tensor.as_numpy()

    def join(self, arrays):
        """Arrays of several requests, one behind the other."""
        return np.concatenate(arrays)

    def finish(self, name, array):
        """An output of a run as `len` and slices of its rows need it; called for outputs that a request wants."""
        return np.asarray(array, dtype=self._types.get(name))

    def write(self, name, array):
        """The tensor of an output."""
        return pb_utils.Tensor(name, array)


def run_together(model, requests, run, arrays=None):
    """Runs the requests of a batch at once, and answers each with its rows.

    `run` gets a dict of arrays by input name and returns one by output name. Requests whose shapes differ beyond the first dimension run one by one, and so
    do all of a model that does not batch. What it raises is the answer of the requests that ran together.
    """
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
        # The arrays of a group go with it: memory of its requests is free for others while the next one runs.
        parts = [inputs.pop(i) for i in group]
        try:
            rows = [_rows(requests[i]) for i in group] if model.max_batch_size > 0 else None
            together = parts[0] if len(parts) == 1 else {name: arrays.join([part[name] for part in parts]) for name in parts[0]}
            del parts
            made = _answers(model, requests, group, rows, run(together), arrays)
        except Exception as error:  # One batch must not end the others.
            made = [_failure(error)] * len(group)
        for i, response in zip(group, made):
            responses[i] = response
    return responses


def _groups(model, requests, indices):
    """Indices of requests that run together."""
    if len(indices) > 1 and model.max_batch_size > 0:
        kinds = {tuple(sorted((tensor.name(), *tensor.shape()[1:]) for tensor in requests[i].inputs())) for i in indices}
        if len(kinds) == 1:
            return [indices]
    return [[i] for i in indices]


def _rows(request):
    tensors = request.inputs()
    return tensors[0].shape()[0] if tensors else 0


def _wanted(request, model, outputs):
    """Names of the outputs that a request gets. What is no output of the configuration is a state, which the server keeps."""
    names = request.requested_output_names()
    return [name for name in outputs if not names or name in names or name not in model.outputs]


def _answers(model, requests, group, rows, outputs, arrays):
    """The responses of a group. `rows` of each request; None where there is no batch dimension, and one request."""
    wanted = [_wanted(requests[i], model, outputs) for i in group]
    whole = {name: arrays.finish(name, array) for name, array in outputs.items() if any(name in names for names in wanted)}
    total = None if rows is None else sum(rows)
    for name, array in whole.items():
        if total and len(array) != total:
            # Triton's text; there it is an error only where rows are missing.
            text = f"failed to split the output tensor '{name}' in responses: expected batch size of at least {total} in model output, got {len(array)}"
            raise RequestError(text, "UNSUPPORTED")
    responses = []
    at = 0
    for position, names in enumerate(wanted):
        parts = whole
        if len(group) > 1:
            to = at + rows[position]
            parts = {name: array[at:to] for name, array in whole.items()}
            at = to
        responses.append(pb_utils.InferenceResponse([arrays.write(name, part) for name, part in parts.items() if name in names]))
    return responses


def _failure(error):
    if isinstance(error, RequestError):
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), getattr(pb_utils.TritonError, error.code)))
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))
