"""Two metrics of the engine, handed to the server by a thread."""
import queue
import threading

import triton_python_backend_utils as pb_utils
from vllm.v1.metrics.loggers import StatLoggerBase, build_1_2_5_buckets


class Logger(StatLoggerBase):
    def __init__(self, labels, vllm_config, engine_index):
        super().__init__(vllm_config=vllm_config, engine_index=engine_index)
        self.tokens_family = pb_utils.MetricFamily(name="vllm:generation_tokens_total", description="Number of generation tokens processed.", kind=pb_utils.MetricFamily.COUNTER)
        self.lengths_family = pb_utils.MetricFamily(name="vllm:request_generation_tokens", description="Number of generation tokens processed.", kind=pb_utils.MetricFamily.HISTOGRAM)
        self.tokens = self.tokens_family.Metric(labels=labels)
        self.lengths = self.lengths_family.Metric(labels=labels, buckets=build_1_2_5_buckets(vllm_config.model_config.max_model_len))
        self.queue = queue.Queue()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0):
        if iteration_stats.num_generation_tokens:
            self.queue.put_nowait((self.tokens.increment, iteration_stats.num_generation_tokens))
        for ended in iteration_stats.finished_requests:
            self.queue.put_nowait((self.lengths.observe, ended.num_generation_tokens))

    def _run(self):
        while True:
            item = self.queue.get()
            if item is None:
                break
            item[0](item[1])

    def finalize(self):
        self.queue.put(None)
        self.thread.join()


class LoggerFactory:
    def __init__(self, labels):
        self.labels = labels
        self.made = []

    def __call__(self, vllm_config, engine_index):
        self.made.append(Logger(self.labels, vllm_config, engine_index))
        return self.made[-1]

    def finalize(self):
        for one in self.made:
            one.finalize()
