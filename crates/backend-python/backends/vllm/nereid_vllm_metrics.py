"""Statistics of the engine as metrics of the server, named as in vLLM. Imported only if a model uses it.

vLLM does not promise the names of its statistics. One that is not there has no values, and stops neither a load nor the
engine.
"""
import triton_python_backend_utils as pb_utils
from vllm.v1.metrics.loggers import StatLoggerBase

FIRST_TOKEN_SECONDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
TOKEN_SECONDS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5]
REQUEST_SECONDS = [1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0]
SEQUENCES = [1, 2, 5, 10, 20]


#: Of a model whose configuration does not say it.
LENGTH_MAX = 32768


def _lengths_up_to(most):
    """Bounds of a histogram: 1, 2, 5, 10, 20 and so on."""
    return [digit * 10**power for power in range(len(str(most))) for digit in (1, 2, 5) if digit * 10**power <= most]


def logger_of(labels):
    """Returns the engine's logger factory. Families are created here, so that a server without metrics rejects them at
    load."""
    counter, histogram = pb_utils.MetricFamily.COUNTER, pb_utils.MetricFamily.HISTOGRAM
    families = {
        name: pb_utils.MetricFamily(name=f"vllm:{name}", description=description, kind=kind)
        for name, description, kind in (
            ("prompt_tokens_total", "Number of prefill tokens processed.", counter),
            ("generation_tokens_total", "Number of generation tokens processed.", counter),
            ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", histogram),
            ("time_per_output_token_seconds", "Histogram of time per output token in seconds.", histogram),
            ("e2e_request_latency_seconds", "Histogram of end to end request latency in seconds.", histogram),
            ("request_prompt_tokens", "Number of prefill tokens processed.", histogram),
            ("request_generation_tokens", "Number of generation tokens processed.", histogram),
            ("request_params_n", "Histogram of the n request parameter.", histogram),
        )
    }

    class Logger(StatLoggerBase):
        def __init__(self, vllm_config, engine_index=0):
            of_model = getattr(vllm_config, "model_config", None)
            lengths = _lengths_up_to(getattr(of_model, "max_model_len", None) or LENGTH_MAX)
            self._families = families

            def metric(name, buckets=None):
                return families[name].Metric(labels=labels, **({} if buckets is None else {"buckets": buckets}))

            self._prompt_tokens = metric("prompt_tokens_total")
            self._tokens = metric("generation_tokens_total")
            self._first_token = metric("time_to_first_token_seconds", FIRST_TOKEN_SECONDS)
            self._token = metric("time_per_output_token_seconds", TOKEN_SECONDS)
            self._request = metric("e2e_request_latency_seconds", REQUEST_SECONDS)
            self._prompt_lengths = metric("request_prompt_tokens", lengths)
            self._lengths = metric("request_generation_tokens", lengths)
            self._sequences = metric("request_params_n", SEQUENCES)

        def record(self, scheduler_stats=None, iteration_stats=None, *others, **more):
            """Called after each step. Sends one message per value to the server without waiting for a reply."""
            stats = iteration_stats
            if stats is None:
                return
            for metric, name in ((self._prompt_tokens, "num_prompt_tokens"), (self._tokens, "num_generation_tokens")):
                if getattr(stats, name, 0):
                    metric.increment(getattr(stats, name))
            observed = [
                (self._first_token, getattr(stats, "time_to_first_tokens_iter", ())),
                # The name before vLLM 0.11.
                (
                    self._token,
                    getattr(stats, "inter_token_latencies_iter", None)
                    or getattr(stats, "time_per_output_tokens_iter", ()),
                ),
                (self._sequences, getattr(stats, "n_params_iter", ())),
            ]
            ended = getattr(stats, "finished_requests", ())
            for metric, name in (
                (self._request, "e2e_latency"),
                (self._prompt_lengths, "num_prompt_tokens"),
                (self._lengths, "num_generation_tokens"),
            ):
                observed.append((metric, [getattr(one, name) for one in ended if hasattr(one, name)]))
            for metric, values in observed:
                for value in values:
                    metric.observe(value)

        def log_engine_initialized(self):
            pass

    return Logger
