"""Counts the time its requests took, in a counter, a gauge and a histogram."""
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.metric_family = pb_utils.MetricFamily(
            name="requests_process_latency_ns",
            description="Cumulative time spent processing requests",
            kind=pb_utils.MetricFamily.COUNTER,
        )
        self.metric = self.metric_family.Metric(labels={"model": args["model_name"], "version": args["model_version"]})

        self.gauge_family = pb_utils.MetricFamily(
            name="last_batch", description="Requests of the last call", kind=pb_utils.MetricFamily.GAUGE
        )
        self.gauge = self.gauge_family.Metric(labels={"model": args["model_name"]})

        self.histogram_family = pb_utils.MetricFamily(
            name="input_sum", description="Sums of inputs", kind=pb_utils.MetricFamily.HISTOGRAM
        )
        self.histogram = self.histogram_family.Metric(labels={"model": args["model_name"]}, buckets=[1.0, 10.0, 100.0])

    def execute(self, requests):
        start_ns = time.time_ns()
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            self.histogram.observe(float(tensor.sum()))
            responses.append(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUTPUT0", tensor)]))
        self.gauge.set(len(requests))
        self.metric.increment(time.time_ns() - start_ns)
        pb_utils.Logger.log_info(f"Cumulative requests processing latency: {self.metric.value()}")
        return responses
