"""The compiled half of Triton's `triton_python_backend_utils`, for types that have no name there (B-PY-01)."""
from nereid_runner.control import get_model_dir, is_model_ready, load_model, unload_model
from nereid_runner.iterator import ResponseIterator
from nereid_runner.kinds import MemoryType, MetricKind, TritonModelException
from nereid_runner.logger import Logger
from nereid_runner.metrics import Metric, MetricFamily
from nereid_runner.request import InferenceRequest, InferenceTrace, PreferredMemory
from nereid_runner.response import InferenceResponse, InferenceResponseSender, TritonError
from nereid_runner.tensor import Tensor

COUNTER, GAUGE, HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
TRITONSERVER_MEMORY_GPU = MemoryType.TRITONSERVER_MEMORY_GPU
TRITONSERVER_MEMORY_CPU = MemoryType.TRITONSERVER_MEMORY_CPU


class SharedMemory:
    """Triton's memory pool, which does not exist here."""

    def free_memory(self):
        return 0


