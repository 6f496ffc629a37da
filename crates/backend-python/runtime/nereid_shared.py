"""Shared code of our Python backends: reads a model's configuration and runs the requests of a batch together. Imported
by its plain name, from beside our own modules. Needs numpy only."""
import importlib
import json
import os
import platform
import sys

import numpy as np

import triton_python_backend_utils as pb_utils
from nereid_runner.failure import one_line, text_of
from nereid_runner.response import received
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
        """The model's own inputs and outputs: configured ones, sequence controls and states, as dictionaries; `part` says
        which of these it is."""
        sequences = self.config.get("sequence_batching", {})
        inputs, outputs = list(self.config["input"]), list(self.config["output"])
        for control in sequences.get("control_input", []):
            inputs.append({"name": control["name"], "data_type": _type_of_control(control["control"][0]), "dims": [1],
                "part": "control"})
        for state in sequences.get("state", []):
            both = {"data_type": state["data_type"], "dims": state["dims"]}
            inputs.append({"name": state["input_name"], "part": "input state", **both})
            outputs.append({"name": state["output_name"], "part": "state", **both})
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

    def join(self, tensors):
        """The rows of several tensors, in an array of its own."""
        return np.concatenate([self.read(tensor) for tensor in tensors])

    def finish(self, name, array):
        """An output of a run, with `len` and slices by rows; called for requested outputs."""
        return np.asarray(array, dtype=self._types.get(name))

    def write(self, name, array):
        return pb_utils.Tensor(name, array)


def run_together(model, requests, run, arrays=None):
    """Runs the requests of a batch at once and answers each with its rows. `run` maps arrays by input name to arrays by
    output name. Requests run one by one if their shapes differ beyond the first dimension, if an input of one cannot be
    read, or if the model does not batch. An exception answers the requests that ran together."""
    arrays = Arrays(model) if arrays is None else arrays
    if len(requests) > 1 and model.max_batch_size > 0:
        responses = _run_joined(model, requests, run, arrays)
        if responses is not None:
            return responses
    responses = []
    for request in requests:
        arrays.runs_again = len(responses) + 1 < len(requests)
        responses.append(_run_alone(model, request, run, arrays))
    return responses


# Running and answering is most of what a request costs beside a small network, so attributes of our own objects are read
# directly here.


def _run_alone(model, request, run, arrays):
    try:
        tensors = request._inputs
        outputs = run({tensor._name: arrays.read(tensor) for tensor in tensors})
        rows = tensors[0]._shape[0] if tensors and model.max_batch_size > 0 else None
        wanted = request._wanted()
        made = []
        for name, array in outputs.items():
            if _is_wanted(name, wanted, model):
                array = arrays.finish(name, array)
                _check_rows(name, array, rows)
                made.append(arrays.write(name, array))
        return received(made)
    except Exception as error:  # One request must not end the others.
        return _failure(error)


def _run_joined(model, requests, run, arrays):
    """Responses of requests that run in one call; None if they cannot, and nothing ran."""
    columns = _columns(requests)
    if not columns:
        return None
    arrays.runs_again = False
    try:
        together = {column[0]._name: arrays.join(column) for column in columns}
    except Exception:
        # Alone, only those that cannot be read fail.
        return None
    try:
        outputs = run(together)
        del together
        rows = [tensor._shape[0] for tensor in columns[0]]
        wanted = [request._wanted() for request in requests]
        whole = {}
        for name, array in outputs.items():
            if any(_is_wanted(name, names, model) for names in wanted):
                whole[name] = arrays.finish(name, array)
                _check_rows(name, whole[name], sum(rows))
        responses = []
        at = 0
        for count, names in zip(rows, wanted):
            to = at + count
            made = [
                arrays.write(name, array[at:to]) for name, array in whole.items() if _is_wanted(name, names, model)
            ]
            responses.append(received(made))
            at = to
        return responses
    except Exception as error:  # One batch must not end the others.
        return [_failure(error)] * len(requests)


def _columns(requests):
    """For each input, the tensors of all requests; None if inputs or their dims, except the first, differ."""
    parts = [request._inputs for request in requests]
    if not _are_alike(parts):
        # Clients may send the same inputs in another order.
        parts = [sorted(part, key=lambda tensor: tensor._name) for part in parts]
        if not _are_alike(parts):
            return None
    return list(zip(*parts))


def _are_alike(parts):
    kinds = [[(tensor._name, tensor._shape[1:]) for tensor in part] for part in parts]
    return kinds.count(kinds[0]) == len(kinds)


def _is_wanted(name, names, model):
    """`names`: those that a request asks for. Outputs that are not configured are states, which the server keeps."""
    return not names or name in names or name not in model.outputs


def _check_rows(name, array, rows):
    if rows and len(array) != rows:
        # Triton's text, although Triton returns it only if rows are missing.
        text = (f"failed to split the output tensor '{name}' in responses: expected batch size of at least {rows} "
            f"in model output, got {len(array)}")
        raise RequestError(text, "UNSUPPORTED")


def _failure(error):
    if isinstance(error, RequestError):
        code = getattr(pb_utils.TritonError, error.code)
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(text_of(error), code))
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(one_line(error)))
