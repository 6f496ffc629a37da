"""The server as seen by objects of this module. `current` is `Unlinked` in a plain test, `server.Server` in a runner.
`Unlinked` documents the methods of both."""
import sys

from .kinds import TritonModelException

BLS_ONLY_IN_EXECUTE = "BLS is only supported during the 'execute' function."
LEVELS = ("VERBOSE", "INFO", "WARNING", "ERROR")


class Refused(Exception):
    """The server rejected an operation. The text is its reason."""


class Unlinked:
    """No server: `import triton_python_backend_utils` in a test. Log lines go to stderr, metrics are kept here."""

    instance = ""
    model_directory = None
    outputs = ()
    decoupled = False

    def __init__(self):
        self._metrics = {}
        self._last = 0

    def log(self, level, file, line, message):
        """Logs a line; `level` is a number of the protocol's `LogLevel`."""
        print(f"{LEVELS[level][0]} {file}:{line}] {message}", file=sys.stderr)

    def control(self, operation, **members):
        """Runs an operation of CONTROL (shm/README.md) and returns its result without the id. Raises `Refused`."""
        if operation in ("family_new", "metric_new"):
            self._last += 1
            self._metrics[self._last] = 0.0
            return {operation.split("_")[0]: self._last}
        if operation == "metric_value":
            return {"value": self._metrics.get(members["metric"], 0.0)}
        raise Refused("there is no server")

    def post(self, operation, **members):
        """Like `control`, without waiting: called by finalizers, in any thread and inside any call."""

    def update(self, metric, operation, value):
        """Changes a metric; `operation` is a number of the protocol's `MetricOperation`."""
        self._metrics[metric] = value if operation == 1 else self._metrics.get(metric, 0.0) + value

    def execute(self, request, decoupled):
        """Runs an inference of another model. Returns an `InferenceResponse`, or an iterator over them."""
        raise TritonModelException(BLS_ONLY_IN_EXECUTE)

    def execute_async(self, request, decoupled):
        """Like `execute`, as a future of the running loop."""
        raise TritonModelException(BLS_ONLY_IN_EXECUTE)

    def failed(self, text):
        """Error text for clients of a failed batch."""
        return f"Failed to process the request(s) for model '{self.instance}', message: {text}"

    def is_cancelled(self, slot, generation):
        return False

    def respond(self, slot, generation, response, final):
        """Sends a response (or None, with `final`) of that request."""
        raise TritonModelException("There is no server to send a response to.")

    def dropped(self, slot, generation):
        """The last reference to the sender of that request is gone before its final response. Called like `post`."""


current = Unlinked()
