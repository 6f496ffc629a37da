"""Runs a model.py without a server, in the process of a test.

    from nereid_runner.harness import Model

    with Model("models/upper/1/model.py") as model:
        assert model.infer(TEXT=np.array([b"hi"], dtype=object))["OUT"].tolist() == [b"HI"]

The runtime directory (crates/backend-python/runtime) must be on the path, as `PYTHONPATH` or pytest's `pythonpath`. Use
of `execute` is checked as in the server, with its texts. There is one model at a time; `models` answers its calls.
"""
import importlib.util
import itertools
import json
import os
import sys
import types
from threading import get_ident
from time import monotonic, sleep

import numpy as np

from . import link, run, strings
from ._protocol import ALL_OUTPUTS, ANSWER_ERROR, ANSWER_RESCHEDULE, ANSWER_RESPONSE
from .iterator import iterator_of
from .kinds import ErrorCode, TritonModelException, text
from .request import RELEASE_ALL, InferenceRequest, trace_of
from .response import InferenceResponse, TritonError, received
from .tensor import BYTES, Tensor

_numbers = itertools.count(1)


class InferenceError(Exception):
    """The model answered a request with an error, or failed."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Model(link.Unlinked):
    """A loaded model. `config`: its configuration, a dict. `outputs`: default of `requested_output_names`. `arguments`
    override those of `initialize`. `models`: other models by name, functions from inputs (arrays by name) to outputs,
    or to a list of outputs for a decoupled call. Log lines are in `log_lines`, as `(level, file, line, text)`."""

    def __init__(self, file, config=None, *, name=None, decoupled=False, outputs=(), arguments=None, models=None,
        timeout=30.0):
        super().__init__()
        file = os.path.abspath(file)
        directory = os.path.dirname(file)
        self.name = name or os.path.basename(os.path.dirname(directory)) or "model"
        config = {"name": self.name, "max_batch_size": 0, "input": [], "output": [], **(config or {})}
        policy = config.get("model_transaction_policy", {})
        self.instance = f"{self.name}_0"
        self.model_directory = directory
        self.decoupled = decoupled or bool(policy.get("decoupled"))
        self.outputs = list(outputs) or [o["name"] for o in config["output"]]
        self.models = dict(models or {})
        self.log_lines = []
        self.cancelled = set()
        self._timeout = timeout
        # The attributes of a server that `run.Runner` uses.
        self.codec, self.requests, self.responses, self.ready, self.parent = _Kept(), None, None, None, None
        self.batch_thread, self.may_call = 0, False
        self._answers = {}
        self._paths = [directory, os.path.dirname(directory)]
        sys.path.extend(self._paths)
        self._before, link.current = link.current, self
        told = {
            "package": "", "module": _module(file), "file": file, "model": self.name, "iterative": True,
            "arguments": {
                "model_config": json.dumps(config), "model_instance_kind": "CPU", "model_instance_name": self.instance,
                "model_instance_device_id": "0",
                "model_repository": os.path.dirname(directory), "model_version": "1", "model_name": self.name,
                **(arguments or {}),
            },
        }  # fmt: skip
        self._runner = run.Runner(self, told)
        try:
            self._runner.start()
        except BaseException:
            self._leave()
            raise

    def infer(self, inputs=None, **more):
        """Outputs by name, of one request. Raises `InferenceError`. Keywords that begin with `_` go to `request`."""
        answered = [r for r in self.infer_all(inputs, **more) if r.output_tensors() or r.has_error()]
        (response,) = answered or [received([])]
        error = response.error()
        if error is not None:
            raise InferenceError(error.code(), error.message())
        return {t.name(): t.as_numpy() for t in response.output_tensors()}

    def infer_all(self, inputs=None, **more):
        """All responses of one request, in order; waits for the last."""
        fields = {k[1:]: more.pop(k) for k in list(more) if k.startswith("_")}
        return self.infer_batch([self.request({**(inputs or {}), **more}, **fields)])[0]

    def infer_batch(self, requests):
        """All responses of each request of a batch. Rescheduled requests run again. Empties the list of requests."""
        slots = [r._head[0] for r in requests]
        for slot in slots:
            self._answers[slot] = ([], [False])
        waiting = list(requests)
        del requests[:]
        while waiting:
            waiting = self._run(waiting)
        end = monotonic() + self._timeout
        for slot in slots:
            while not self._answers[slot][1][0]:
                if monotonic() > end:
                    raise TimeoutError("a request got no response")
                sleep(0.001)
        return [self._answers.pop(slot)[0] for slot in slots]

    def request(self, inputs, *, id="", correlation_id=0, flags=0, timeout=0, parameters=None, outputs=None):
        """A request as from a client: `inputs` are arrays by name. BYTES arrays contain `bytes`."""
        request = InferenceRequest.__new__(InferenceRequest)
        names = None if outputs is None else [text(n) for n in outputs]
        request._head = (next(_numbers), 1, 0, 0, 0, len(inputs), ALL_OUTPUTS if names is None else len(names), 0, 0, 0,
            0)
        request._texts, request._sender, request._release = None, None, RELEASE_ALL
        request._inputs = [_input(name, value) for name, value in inputs.items()]
        request._id, request._correlation, request._flags, request._timeout = id, correlation_id, flags, timeout
        request._parameters, request._trace = json.dumps(parameters or {}), trace_of(None, None)
        request._names = self.outputs if names is None else names
        return request

    def cancel(self, request):
        """Simulates a client that disconnects: `is_cancelled` of the request and its sender returns True."""
        self.cancelled.add(request._head[0])

    def is_ready(self):
        """The model's own readiness; True if it has none."""
        made = getattr(self._runner.model, "is_ready", lambda: True)()
        if hasattr(made, "__await__"):
            import asyncio

            made = asyncio.run(made)
        return made is True

    def close(self):
        if self._runner.model is not None:
            self._runner.finalize()
        self._leave()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _leave(self):
        link.current = self._before
        for path in self._paths:
            if path in sys.path:
                sys.path.remove(path)

    def _run(self, requests):
        """Runs a batch; returns requests that are to run again."""
        runner = self._runner
        self.batch_thread = get_ident()
        parts = []
        try:
            given = requests[:]
            returned = runner._execute(given, requests)
            runner._answers(parts, requests, given, returned)
        except Exception as e:
            failure = self.failed(run.message_of(e))
            parts = []
            if runner._failures(parts, requests, failure) is None:
                parts = [(ANSWER_ERROR, received([], TritonError(failure)))] * len(requests)
        finally:
            self.batch_thread = 0
        again = []
        for request, (kind, response) in zip(requests, parts):
            if kind == ANSWER_RESCHEDULE:
                request._release = RELEASE_ALL
                request._flags = 0
                again.append(request)
            elif kind in (ANSWER_RESPONSE, ANSWER_ERROR):
                self.respond(request._head[0], 1, response, True)
        requests.clear()
        return again

    def log(self, level, file, line, message):
        self.log_lines.append((link.LEVELS[level], file, line, message))

    def control(self, operation, **members):
        if operation == "is_ready":
            return {"ready": members["model"] in self.models or members["model"] == self.name}
        if operation == "load" and members["model"] not in self.models:
            raise link.Refused(f"failed to load '{members['model']}', failed to poll from model repository")
        if operation in ("load", "unload"):
            return {}
        return super().control(operation, **members)

    def is_cancelled(self, slot, generation):
        return slot in self.cancelled

    def respond(self, slot, generation, response, final, is_failed=False):
        got = self._answers.get(slot)
        if got is None:
            return
        if response is not None:
            got[0].append(response)
        if final:
            got[1][0] = True

    def dropped(self, slot, generation):
        error = TritonError(self.failed("the request has no final response: its response sender ended before it sent "
            "one"))
        self.respond(slot, generation, received([], error), True)

    def execute(self, request, decoupled):
        if not self.may_call:
            raise TritonModelException(link.BLS_ONLY_IN_EXECUTE)
        responses = self._called(request, decoupled)
        if not decoupled:
            return responses[0]
        iterator, came = iterator_of(_Over())
        for at, response in enumerate(responses, 1):
            came.put((response, at == len(responses)))
        return iterator

    def execute_async(self, request, decoupled):
        import asyncio

        future = asyncio.get_running_loop().create_future()
        future.set_result(self.execute(request, decoupled))
        return future

    def _called(self, request, decoupled):
        model = self.models.get(request._model)
        prefix = f"Model {request._model} - Error when running inference: "
        if model is None:
            return [_error(ErrorCode.INTERNAL, f"{prefix}Request for unknown model: '{request._model}' is not found")]
        try:
            made = model({t.name(): t.as_numpy() for t in request._inputs})
        except InferenceError as e:
            return [_error(e.code, str(e))]
        except Exception as e:
            return [_error(ErrorCode.INTERNAL, f"Failed to process the request(s) for model '{request._model}_0', "
                f"message: {type(e).__name__}: {e}")]
        several = not isinstance(made, dict)
        responses = [received([Tensor(n, np.asarray(a)) for n, a in outputs.items()]) for outputs in (made if several
            else [made])]
        if decoupled:
            # A decoupled model's end is a response of its own.
            return [*responses, received([], None, "")] if several else responses
        if several:
            return [
                _error(
                    ErrorCode.INTERNAL,
                    f"{prefix}Model {request._model} is using the decoupled. The current BLS request call "
                    f"doesn't support models using the decoupled "
                    "transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' "
                    "calls for decoupled models.'",
                )
            ]
        return responses


class _Over:
    """A call that has all its responses."""

    def cancel(self):
        pass

    close = cancel


class _Kept:
    """Keeps responses as objects instead of frames."""

    def answer_of_batch(self, parts, response, names):
        if names is not None and not response.has_error():
            response = received([t for t in response.output_tensors() if t.name() in names], None,
                response.parameters())
        parts.append((ANSWER_RESPONSE, response))
        return 0

    def error(self, parts, code, message, flags=None):
        parts.append((ANSWER_ERROR, _error(ErrorCode(code), message)))
        return 0

    def end(self, parts, kind):
        parts.append((kind, None))
        return 0


def _error(code, message):
    return received([], TritonError(message, code))


def _input(name, value):
    array = np.array(value)
    if array.dtype.kind == "U":
        array = array.astype(np.object_)
    tensor = Tensor(name, array)
    if tensor._code == BYTES:
        tensor._numpy = strings.to_array(strings.decode(tensor._raw, array.size), array.shape)
    return tensor


def _module(file):
    """Imports a file as a package's module under a unique name, so that relative imports work; returns that name."""
    package = types.ModuleType(f"nereid_harness_{next(_numbers)}")
    package.__path__ = [os.path.dirname(file)]
    sys.modules[package.__name__] = package
    name = f"{package.__name__}.{os.path.splitext(os.path.basename(file))[0]}"
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return name


__all__ = ["InferenceError", "InferenceResponse", "Model"]
