"""What our backends that are written in Python share: reading a model's configuration, and running the requests of a batch together.

Imported by plain name: the directory above a backend's own is searched. Needs numpy only.
"""
import importlib
import json
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
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise LoadError(f"failed to load model '{model.name}': import of {module} in {python}: {error}") from error
        text = (
            f"failed to load model '{model.name}': its backend needs {title}, and {python} has no module '{module}'. "
            "Another interpreter is named by NEREID_PYTHON or by --backend-config=python,python-executable=PATH"
        )
        raise _Missing(text, name=module) from None
    except Exception as error:
        raise LoadError(f"failed to load model '{model.name}': import of {module} in {python}: {type(error).__name__}: {error}") from error


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


def _numpy_type(data_type):
    try:
        return pb_utils.triton_string_to_numpy(data_type)
    except KeyError:
        # BF16, without the package that has it.
        return None


class Arrays:
    """How tensors of requests become arrays of numpy, and arrays tensors of responses. A framework with arrays of its own has a class like this."""

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
    for group in _groups(model, requests, list(inputs)):
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
