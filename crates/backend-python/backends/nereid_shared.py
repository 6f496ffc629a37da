"""What our backends that are written in Python share: reading a model's configuration, and running the requests of a batch together.

Imported by plain name: the directory above a backend's own is searched. Needs numpy only.
"""
import json

import numpy as np

import triton_python_backend_utils as pb_utils


class Model:
    """A model's configuration, as `initialize` is told of it."""

    def __init__(self, args):
        self.config = json.loads(args["model_config"])
        self.name = args["model_name"]
        self.directory = args["model_repository"]
        self.version_directory = f"{self.directory}/{args['model_version']}"
        self.max_batch_size = self.config["max_batch_size"]
        self.inputs = [tensor["name"] for tensor in self.config["input"]]
        self.outputs = {tensor["name"]: pb_utils.triton_string_to_numpy(tensor["data_type"]) for tensor in self.config["output"]}

    def parameter(self, key, default=None):
        """The text of a parameter of the configuration."""
        found = self.config.get("parameters", {}).get(key)
        return default if found is None else found["string_value"]

    def flag(self, key, default=False):
        """A parameter that is true or false; refuses anything else."""
        text = self.parameter(key)
        if text is None:
            return default
        if text.lower() not in ("true", "false", "1", "0"):
            raise pb_utils.TritonModelException(f"parameter '{key}' of model '{self.name}' must be true or false, not '{text}'")
        return text.lower() in ("true", "1")

    def number(self, key, default=0):
        """A parameter that is a whole number."""
        text = self.parameter(key)
        try:
            return default if text is None else int(text)
        except ValueError:
            raise pb_utils.TritonModelException(f"parameter '{key}' of model '{self.name}' must be a whole number, not '{text}'") from None

    def file(self, default):
        """Path of the model's file: as configured, or `default`, in the version's directory."""
        return f"{self.version_directory}/{self.config['default_model_filename'] or default}"


def run_together(model, requests, run):
    """Runs the requests of a batch at once, and answers each with its rows.

    `run` gets a dict of arrays by input name and returns one by output name. Requests whose shapes differ beyond the first dimension run one by one, and so
    do all of a model that does not batch. What it raises is the answer of the requests that ran together.
    """
    inputs = [{t.name(): t.as_numpy() for t in request.inputs()} for request in requests]
    kinds = [tuple(sorted((name, a.dtype.str, a.shape[1:]) for name, a in one.items())) for one in inputs]
    if model.max_batch_size == 0 or len(set(kinds)) > 1:
        groups = [[i] for i in range(len(requests))]
    else:
        groups = [list(range(len(requests)))]
    responses = [None] * len(requests)
    for group in groups:
        together = inputs[group[0]]
        if len(group) > 1:
            together = {name: np.concatenate([inputs[i][name] for i in group]) for name in together}
        try:
            outputs = run(together)
        except Exception as error:  # One batch must not end the others.
            for i in group:
                responses[i] = pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))
            continue
        at = 0
        for i in group:
            rows = next(iter(inputs[i].values())).shape[0] if len(group) > 1 else None
            part = {name: a if rows is None else a[at : at + rows] for name, a in outputs.items()}
            at += rows or 0
            tensors = [pb_utils.Tensor(name, np.asarray(a, dtype=model.outputs.get(name))) for name, a in part.items()]
            responses[i] = pb_utils.InferenceResponse(tensors)
    return responses
