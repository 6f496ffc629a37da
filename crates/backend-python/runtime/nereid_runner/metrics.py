"""`MetricFamily` and `Metric` (B-PY-20): metrics of a model in the server's /metrics. Changes are sent without a reply,
so values that the server would reject are rejected here, with its texts."""
import math

from . import link
from .kinds import UNCASTABLE, MetricKind, TritonModelException, bind, incompatible, public, text

_INCREMENT, _SET, _OBSERVE = range(3)
_GONE = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should "
    "be deleted "
    "AFTER its corresponding 'Metric' objects have been deleted."
)


def reason(text):
    """A reason from the server in the form that models see."""
    return f"Failed to process the request for model '{link.current.instance}', message: {text}"


@public
class MetricFamily:
    __slots__ = ("_id", "_kind", "_alive", "_link", "__weakref__")
    COUNTER, GAUGE, HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
    _SIGNATURE = ("c_python_backend_utils.MetricFamily(name: str, description: str, "
        "kind: c_python_backend_utils.MetricKind)")

    def __init__(self, *args, **kwargs):
        self._alive = None
        what = "MetricFamily.__init__"
        name, description, kind = bind(what, ("name", "description", "kind"), {}, self._SIGNATURE, args, kwargs)
        try:
            name, description = text(name), text(description)
        except TypeError:
            kind = None
        if not isinstance(kind, MetricKind):
            raise incompatible(what, self._SIGNATURE, args, kwargs)
        self._kind = kind.name
        self._link = link.current
        try:
            made = self._link.control("family_new", name=name, description=description, kind=kind.name.lower())
        except link.Refused as e:
            raise TritonModelException(f"Error when creating MetricFamily: {reason(e)}") from None
        self._id = made["family"]
        self._alive = [True]

    def Metric(self, *args, **kwargs):
        """A series of this family: one per set of labels."""
        signature = ("(self: c_python_backend_utils.MetricFamily, labels: object = None, buckets: object = None) -> "
            "c_python_backend_utils.Metric")
        labels, buckets = bind("Metric", ("labels", "buckets"), {"labels": None, "buckets": None}, signature, args,
            kwargs)
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        if buckets is not None and not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if self._kind != "HISTOGRAM" and buckets is not None:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        if self._kind == "HISTOGRAM" and buckets is None:
            raise TritonModelException("Failed to create metric. Missing required buckets.")
        return _metric(self, labels or {}, buckets or [])

    def __del__(self):
        if self._alive:
            self._alive[0] = False
            self._link.post("family_delete", family=self._id)


def _metric(family, labels, buckets):
    for value in labels.values():
        if not isinstance(value, str):
            raise TritonModelException(f"Error when creating Metric: "
                f"{reason('attempt to access JSON non-string as string')}")
    try:
        bounds = [float(b) if not isinstance(b, str) else None for b in buckets]
    except TypeError:
        bounds = [None]
    if None in bounds:
        raise RuntimeError(f"Unable to cast Python instance of type {type(buckets)} {UNCASTABLE}")
    # The last bucket is always +Inf, which JSON cannot represent.
    bounds = [b for b in bounds if b != math.inf]
    if any(math.isnan(b) or math.isinf(b) for b in bounds):
        raise TritonModelException(f"Error when creating Metric: {reason('bucket boundaries must be numbers')}")
    try:
        made = family._link.control("metric_new", family=family._id, labels={str(k): v for k, v in labels.items()},
            buckets=bounds)
    except link.Refused as e:
        raise TritonModelException(f"Error when creating Metric: {reason(e)}") from None
    metric = Metric.__new__(Metric)
    metric._id = made["metric"]
    metric._kind = family._kind
    metric._alive = family._alive
    metric._link = family._link
    return metric


@public
class Metric:
    __slots__ = ("_id", "_kind", "_alive", "_link", "__weakref__")

    def __init__(self, *args, **kwargs):
        raise TypeError("c_python_backend_utils.Metric: No constructor defined!")

    def _change(self, what, operation, kinds, args, kwargs):
        signature = f"(self: c_python_backend_utils.Metric, {_ARGUMENT[what]}: float) -> None"
        (given,) = bind(what, (_ARGUMENT[what],), {}, signature, args, kwargs)
        try:
            if isinstance(given, (str, bytes)):
                raise TypeError
            value = float(given)
        except (TypeError, ValueError):
            raise incompatible(what, signature, args, kwargs) from None
        prefix = f"Failed to {what} metric value: "
        if not self._alive[0]:
            raise TritonModelException(prefix + _GONE)
        if self._kind not in kinds:
            raise TritonModelException(prefix + reason(f"TRITONSERVER_METRIC_KIND_{self._kind} does not support "
                f"{what.capitalize()}"))
        if operation == _INCREMENT and self._kind == "COUNTER" and value < 0:
            raise TritonModelException(
                prefix + reason("TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by "
                    "non-negative values.")
            )
        self._link.update(self._id, operation, value)

    def increment(self, *args, **kwargs):
        self._change("increment", _INCREMENT, ("COUNTER", "GAUGE"), args, kwargs)

    def set(self, *args, **kwargs):
        self._change("set", _SET, ("GAUGE",), args, kwargs)

    def observe(self, *args, **kwargs):
        self._change("observe", _OBSERVE, ("HISTOGRAM",), args, kwargs)

    def value(self, *args):
        if args:
            raise incompatible("value", "(self: c_python_backend_utils.Metric) -> float", args)
        prefix = "Failed to get metric value: "
        if not self._alive[0]:
            raise TritonModelException(prefix + _GONE)
        if self._kind == "HISTOGRAM":
            raise TritonModelException(prefix + reason("TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value"))
        try:
            value = self._link.control("metric_value", metric=self._id)["value"]
        except link.Refused as e:
            raise TritonModelException(prefix + reason(e)) from None
        # JSON has no NaN or infinities: null, and their names.
        return math.nan if value is None else float(value)

    def __del__(self):
        if getattr(self, "_alive", None) and self._alive[0]:
            self._link.post("metric_delete", metric=self._id)


_ARGUMENT = {"increment": "value", "set": "value", "observe": "value"}
