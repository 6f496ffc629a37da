"""Model of the LLM API in the shape of TensorRT-LLM's all_models/llmapi, with the parts of it that depend on a server.

model.yaml has the engine's arguments and, for auto_complete_config, whether the model is decoupled. tensorrt_llm is
imported in `initialize`. The engine is in a thread with `asyncio.run`; a second thread sends the responses of streams,
and a third aborts cancelled requests and answers them. A request with `stop` ends the requests that have its id.
"""
import asyncio
import gc
import os
import queue
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
import yaml

from helpers import array, sampling_params, scalar

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
LLM = None
SamplingParams = None


def settings():
    """Arguments of the engine, and settings of the model."""
    with open(os.path.join(pb_utils.get_model_dir(), os.environ.get("LLM_CONFIG_PATH", "model.yaml"))) as file:
        found = yaml.safe_load(file)
    return found, found.pop("triton_config")


@dataclass
class Running:
    user_id: str
    request: Any
    output: Any


class TritonPythonModel:
    @classmethod
    def auto_complete_config(cls, auto_complete_model_config):
        _, triton = settings()
        auto_complete_model_config.set_model_transaction_policy(dict(decoupled=bool(triton["decoupled"])))
        auto_complete_model_config.set_max_batch_size(int(triton["max_batch_size"]))
        return auto_complete_model_config

    def initialize(self, args):
        global LLM, SamplingParams
        from tensorrt_llm import LLM, SamplingParams

        self.arguments, triton = settings()
        self.decoupled = bool(triton["decoupled"])
        self.period_seconds = triton.get("cancellation_check_period_ms", 100) / 1000
        self.ongoing = 0
        self.engine = None
        self.engine_is_there = threading.Condition()
        self.stop = asyncio.Event()
        self.event_thread = threading.Thread(target=asyncio.run, args=(self._run_engine(),))
        self.event_thread.start()
        with self.engine_is_there:
            while self.engine is None:
                self.engine_is_there.wait()
        if isinstance(self.engine, Exception):
            self.event_thread.join()
            raise self.engine
        self.responses = queue.Queue()
        self.response_thread = threading.Thread(target=self._send_responses)
        self.response_thread.start()
        self.requests = {}
        self.lock = threading.Lock()
        self.running = True
        self.cancellation_thread = threading.Thread(target=self._check_cancelled)
        self.cancellation_thread.start()

    async def _run_engine(self):
        loop = asyncio.get_running_loop()

        @asynccontextmanager
        async def running():
            engine = await loop.run_in_executor(None, lambda: LLM(**self.arguments))
            try:
                yield engine
            finally:
                await loop.run_in_executor(None, engine.shutdown)

        try:
            async with running() as engine:
                self.loop = loop
                self._set_engine(engine)
                await self.stop.wait()
                while self.ongoing > 0:
                    await asyncio.sleep(0.01)
        except Exception as error:
            self._set_engine(error)

    def _set_engine(self, engine):
        with self.engine_is_there:
            self.engine = engine
            self.engine_is_there.notify_all()

    def _send_responses(self):
        while (item := self.responses.get()) is not None:
            sender, response, flags = item
            try:
                sender.send(response, flags)
            except Exception as error:
                pb_utils.Logger.log_error(f"An error occurred while sending a response: {error}")
            finally:
                if flags == FINAL:
                    self.ongoing -= 1

    def _check_cancelled(self):
        while self.running:
            time.sleep(self.period_seconds)
            with self.lock:
                for key in [key for key, one in self.requests.items() if one.request.is_cancelled()]:
                    one = self.requests.pop(key)
                    one.output.abort()
                    self._cancel(one.request.get_response_sender())

    def _cancel(self, sender):
        error = pb_utils.TritonError("Request cancelled by client", pb_utils.TritonError.CANCELLED)
        sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)

    def execute(self, requests):
        for request in requests:
            asyncio.run_coroutine_threadsafe(self._infer(request), self.loop)
        return None

    def _end_by_id(self, user_id, sender):
        if not user_id:
            error = pb_utils.TritonError("A request id must be provided for request cancellation")
            sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)
            return
        with self.lock:
            for one in self.requests.values():
                if one.user_id == user_id:
                    one.output.abort()
        self._cancel(sender)

    async def _infer(self, request):
        sender = request.get_response_sender()
        if scalar(request, "stop", False):
            return self._end_by_id(request.request_id(), sender)
        self.ongoing += 1
        counts_here = True
        try:
            texts = array(request, "text_input")
            streaming = scalar(request, "streaming", False)
            if streaming and not self.decoupled:
                raise pb_utils.TritonModelException("Streaming is only supported in decoupled mode.")
            params = SamplingParams(**sampling_params(request))
            output = self.engine.generate_async(texts[0].decode(), params, streaming)
            with self.lock:
                self.requests[id(output)] = Running(request.request_id(), request, output)
            async for step in output:
                if streaming:
                    flags = FINAL if step.finished else 0
                    counts_here = counts_here and not step.finished
                    self.responses.put_nowait((sender, self._response(request, step), flags))
            with self.lock:
                was_cancelled = self.requests.pop(id(output), None) is None
            if not streaming and not was_cancelled:
                sender.send(self._response(request, step), flags=FINAL)
        except Exception as error:
            text = pb_utils.Tensor("text_output", np.asarray(["N/A"], dtype=np.object_))
            failed = pb_utils.TritonError(f"Error generating request: {error}")
            sender.send(pb_utils.InferenceResponse(output_tensors=[text], error=failed), flags=FINAL)
            raise
        finally:
            if counts_here:
                self.ongoing -= 1

    def _response(self, request, step):
        texts = np.asarray([output.text.encode() for output in step.outputs], dtype=np.object_)
        tensors = [pb_utils.Tensor("text_output", texts)]
        for name in ("finish_reason", "stop_reason"):
            if scalar(request, f"return_{name}", False):
                values = np.asarray([str(getattr(output, name)) for output in step.outputs], dtype=np.object_)
                tensors.append(pb_utils.Tensor(name, values))
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def finalize(self):
        self.loop.call_soon_threadsafe(self.stop.set)
        self.event_thread.join()
        self.responses.put(None)
        self.response_thread.join()
        self.running = False
        self.cancellation_thread.join()
        gc.collect()
