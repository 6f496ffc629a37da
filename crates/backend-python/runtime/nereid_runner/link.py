"""What this module's objects ask of the server. `current` is the way there: none in a plain test, see `Unlinked`; `server.Server` in a runner.

What each function of a link must do is said once, at `Unlinked`.
"""
import sys

from .kinds import TritonModelException

BLS_ONLY_IN_EXECUTE = "BLS is only supported during the 'execute' function."
LEVELS = ("VERBOSE", "INFO", "WARNING", "ERROR")


class Refused(Exception):
    """The server does not do what was asked. The text is its reason."""


class Unlinked:
    """No server: `import triton_python_backend_utils` in a test. Lines of the log go to stderr, metrics are kept here."""

    instance = ""
    model_directory = None
    outputs = ()
    decoupled = False

    def __init__(self):
        self._metrics = {}
        self._last = 0

    def log(self, level, file, line, message):
        """Writes a line; `level` is a number of the protocol's `LogLevel`."""
        print(f"{LEVELS[level][0]} {file}:{line}] {message}", file=sys.stderr)

    def control(self, operation, **members):
        """Does an operation of CONTROL (shm/README.md) and returns what is there beside its id. Raises `Refused`."""
        if operation in ("family_new", "metric_new"):
            self._last += 1
            self._metrics[self._last] = 0.0
            return {operation.split("_")[0]: self._last}
        if operation == "metric_value":
            return {"value": self._metrics.get(members["metric"], 0.0)}
        raise Refused("there is no server")

    def post(self, operation, **members):
        """As `control`, but nobody waits for it: called where objects end, in any thread, also inside of any call."""

    def update(self, metric, operation, value):
        """Changes a metric; `operation` is a number of the protocol's `MetricOperation`."""
        self._metrics[metric] = value if operation == 1 else self._metrics.get(metric, 0.0) + value

    def execute(self, request, decoupled):
        """Inference by another model. An `InferenceResponse`, or an iterator over them."""
        raise TritonModelException(BLS_ONLY_IN_EXECUTE)

    def execute_async(self, request, decoupled):
        """As `execute`, as a future of the running loop."""
        raise TritonModelException(BLS_ONLY_IN_EXECUTE)

    def failed(self, text):
        """What clients of a failed batch are told."""
        return f"Failed to process the request(s) for model '{self.instance}', message: {text}"

    def is_cancelled(self, slot, generation):
        """Whether nobody wants the answer of that request any more."""
        return False

    def respond(self, slot, generation, response, final):
        """Sends a response (or None, with `final`) of that request."""
        raise TritonModelException("There is no server to send a response to.")

    def dropped(self, slot, generation):
        """The last reference to the sender of that request is gone, and it has not ended. Called as `post` is."""


current = Unlinked()
