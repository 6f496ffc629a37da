"""A backend of vLLM in the shape of the public vllm_backend, for a test that such code runs: what it asks of the server, and no more of its features.

The engine is in a thread with `asyncio.run`, responses of streams are sent by another, metrics by a third; none is a daemon. `execute` leaves its requests
to the engine's event loop and returns None; a model whose engine is sick unloads itself within `execute`; `finalize` ends all threads.
"""
import asyncio
import gc
import json
import os
import queue
import threading
import traceback

import numpy as np
import triton_python_backend_utils as pb_utils
from vllm.engine.arg_utils import AsyncEngineArgs

from utils.metrics import LoggerFactory
from utils.requests import Request, running_engine


class TritonPythonModel:
    @classmethod
    def auto_complete_config(cls, auto_complete_model_config):
        cls._add(auto_complete_model_config)
        auto_complete_model_config.set_model_transaction_policy(dict(decoupled=True))
        auto_complete_model_config.set_max_batch_size(0)
        return auto_complete_model_config

    @staticmethod
    def _add(config):
        there = config.as_dict()
        names = [tensor["name"] for tensor in there["input"] + there["output"]]
        for name, kind, optional in (("text_input", "STRING", False), ("stream", "BOOL", True), ("sampling_parameters", "STRING", True), ("exclude_input_in_output", "BOOL", True)):
            if name not in names:
                config.add_input({"name": name, "data_type": f"TYPE_{kind}", "dims": [1], **({"optional": True} if optional else {})})
        for name, kind in (("text_output", "STRING"), ("num_input_tokens", "UINT32")):
            if name not in names:
                config.add_output({"name": name, "data_type": f"TYPE_{kind}", "dims": [-1]})

    def initialize(self, args):
        self.logger = pb_utils.Logger
        self.model_config = json.loads(args["model_config"])
        self.output_dtype = pb_utils.triton_string_to_numpy(pb_utils.get_output_config_by_name(self.model_config, "text_output")["data_type"])
        assert pb_utils.using_decoupled_model_transaction_policy(self.model_config)
        with open(os.path.join(pb_utils.get_model_dir(), "model.json")) as file:
            arguments = json.load(file)
        self.arguments = AsyncEngineArgs(**arguments)
        self.checks_health = self._flag("ENABLE_VLLM_HEALTH_CHECK")
        self.factories = []
        if self._flag("REPORT_CUSTOM_METRICS"):
            self.factories.append(LoggerFactory({"model": args["model_name"], "version": args["model_version"]}))
        self.engine = None
        self.ongoing = 0
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
        self.tasks = asyncio.run_coroutine_threadsafe(self.engine.get_supported_tasks(), self.loop).result()
        self.responses = queue.Queue()
        self.response_thread = threading.Thread(target=self._send_responses)
        self.response_thread.start()

    def _flag(self, name):
        parameters = self.model_config["parameters"]
        return name in parameters and parameters[name]["string_value"].lower() == "true"

    async def _run_engine(self):
        try:
            async with running_engine(self.arguments, self.factories) as engine:
                self.loop = asyncio.get_running_loop()
                with self.engine_is_there:
                    self.engine = engine
                    self.engine_is_there.notify_all()
                await self.stop.wait()
                while self.ongoing > 0:
                    await asyncio.sleep(0.01)
        except Exception as error:
            with self.engine_is_there:
                self.engine = error
                self.engine_is_there.notify_all()

    def _send_responses(self):
        while True:
            item = self.responses.get()
            if item is None:
                break
            state, response, flags = item
            try:
                state["sender"].send(response, flags)
                if not state["last"]:
                    state["cancelled"] = state["sender"].is_cancelled()
            except Exception:
                self.logger.log_error(traceback.format_exc())
            finally:
                if flags == pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL:
                    self.ongoing -= 1

    def execute(self, requests):
        if self.checks_health and not self._is_healthy(requests):
            return None
        for request in requests:
            asyncio.run_coroutine_threadsafe(self._infer(request), self.loop)
        return None

    async def _infer(self, request):
        sender = request.get_response_sender()
        state = {"sender": sender, "cancelled": False, "last": False}
        self.ongoing += 1
        counts_here = True
        try:
            asked = Request(request, self.output_dtype)
            async for output in self.engine.generate(asked.prompt, asked.sampling, asked.id):
                if state["cancelled"] if asked.stream else sender.is_cancelled():
                    await self.engine.abort(asked.id)
                    if asked.stream:
                        state["last"] = True
                        counts_here = False
                        error = pb_utils.TritonError(message="Request was cancelled", code=pb_utils.TritonError.CANCELLED)
                        self.responses.put_nowait((state, pb_utils.InferenceResponse(error=error), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL))
                    break
                if asked.stream:
                    flags = 0
                    response = asked.response(output)
                    if output.finished:
                        state["last"] = True
                        counts_here = False
                        flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                    self.responses.put_nowait((state, response, flags))
            if not asked.stream:
                sender.send(asked.response(output), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        except Exception as error:
            text = pb_utils.Tensor("text_output", np.asarray(["N/A"], dtype=self.output_dtype))
            response = pb_utils.InferenceResponse(output_tensors=[text], error=pb_utils.TritonError(f"Error generating stream: {error}"))
            sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            raise
        finally:
            if counts_here:
                self.ongoing -= 1

    def _is_healthy(self, requests):
        try:
            asyncio.run_coroutine_threadsafe(self.engine.check_health(), self.loop).result()
            return True
        except Exception:
            self.logger.log_error(traceback.format_exc())
        pb_utils.unload_model(self.model_config["name"])
        for request in requests:
            error = pb_utils.TritonError(message="Model is unavailable due to unhealthy vLLM engine", code=pb_utils.TritonError.UNAVAILABLE)
            request.get_response_sender().send(pb_utils.InferenceResponse(error=error), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return False

    def finalize(self):
        self.loop.call_soon_threadsafe(self.stop.set)
        self.event_thread.join()
        self.responses.put(None)
        self.response_thread.join()
        for factory in self.factories:
            factory.finalize()
        gc.collect()
