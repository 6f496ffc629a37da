"""The backend `vllm`: large language models, run by the user's own vllm (docs/spec/backends-native.md, 9).

The engine forms batches itself, so requests are passed to it as they come, and `execute` returns at once. It runs in an
event loop in a thread of its own; each request is a task there. A task ends with exactly one final response: from the
engine, an error, or CANCELLED.

Tests use a stand-in of that package; `npm run test:heavy -- vllm` runs it with vLLM itself, on a CPU.
"""
import asyncio
import inspect
import json
import os
import threading
import uuid

import nereid_vllm_requests as requests_of
import triton_python_backend_utils as pb_utils
from nereid_shared import LoadError, Model, RequestError, framework, one_line, text_of

ARGUMENTS_FILE = "model.json"
LORAS_FILE = "multi_lora.json"
#: Interval of checking whether clients of requests in the engine have disconnected.
CANCELLED_EVERY_SECONDS = 0.02
UNHEALTHY = "Model is unavailable due to unhealthy vLLM engine"


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        there = config.as_dict()
        for add, field, wanted in (
            (config.add_input, "input", requests_of.INPUTS),
            (config.add_output, "output", requests_of.OUTPUTS),
        ):
            names = {tensor["name"] for tensor in there[field]}
            for tensor in wanted:
                if tensor["name"] not in names:
                    add(tensor)
        config.set_model_transaction_policy({"decoupled": True})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        self.model = model = Model(args)
        if not pb_utils.using_decoupled_model_transaction_policy(model.config):
            raise LoadError(
                f"failed to load model '{model.name}': a vLLM model needs 'model_transaction_policy {{ decoupled: true"
                " }' in its configuration"
            )
        arguments = self._read_arguments()
        _choose_device(arguments, args)
        self.vllm = framework("vllm", "vLLM", model)
        self.checks_health = model.flag("ENABLE_VLLM_HEALTH_CHECK")
        self.is_healthy = True
        #: `_Answer` of each request in the engine, by its task.
        self.running = {}
        self.watcher = None
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="vllm", daemon=True)
        self.thread.start()
        try:
            self._in_loop(self._start(arguments))
        except LoadError:
            raise
        except Exception as error:
            raise LoadError(
                f"failed to load model '{model.name}': the vLLM engine does not start with"
                f" {self._path(ARGUMENTS_FILE)}: {one_line(error)}"
            ) from error

    def execute(self, requests):
        asyncio.run_coroutine_threadsafe(self._begin(requests), self.loop)

    async def is_ready(self):
        """With ENABLE_VLLM_HEALTH_CHECK, the engine's health."""
        if not self.checks_health or not self.is_healthy:
            return self.is_healthy
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._ask_health(), self.loop)) is None

    def finalize(self):
        self._in_loop(self._stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    # The engine.

    def _path(self, file):
        return os.path.join(self.model.version_directory, file)

    def _read(self, file, what):
        path = self._path(file)
        try:
            with open(path) as opened:
                found = json.load(opened)
        except FileNotFoundError:
            raise LoadError(
                f"failed to load model '{self.model.name}': '{path}' is not there; it has to have {what}"
            ) from None
        except ValueError as error:
            raise LoadError(f"failed to load model '{self.model.name}': '{path}' is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise LoadError(f"failed to load model '{self.model.name}': '{path}' has to be an object with {what}")
        return found

    def _read_arguments(self):
        arguments = self._read(
            ARGUMENTS_FILE, 'the arguments of the vLLM engine, such as {"model": "facebook/opt-125m"}'
        )
        self.loras = None
        if str(arguments.get("enable_lora", False)).lower() == "true":
            arguments["enable_lora"] = True
            self.loras = self._read(LORAS_FILE, "the directory of each LoRA by its name")
        return arguments

    async def _start(self, arguments):
        engine_arguments = self.vllm.AsyncEngineArgs(**arguments)
        loggers = []
        if self.model.flag("REPORT_CUSTOM_METRICS") and not getattr(engine_arguments, "disable_log_stats", False):
            loggers = self._loggers()
        self.engine = self.vllm.AsyncLLMEngine.from_engine_args(engine_arguments, stat_loggers=loggers or None)
        ask = getattr(self.engine, "get_supported_tasks", None)
        self.tasks = None if ask is None else await ask()
        self.first_token = await self._first_token()

    async def _first_token(self):
        """Text of the token that begins every text; None if there is none."""
        try:
            tokenizer = self.engine.get_tokenizer()
            # A coroutine in vLLM 0.13.
            tokenizer = await tokenizer if inspect.isawaitable(tokenizer) else tokenizer
        except (AttributeError, ValueError):
            return None
        return getattr(tokenizer, "bos_token", None)

    def _loggers(self):
        try:
            from nereid_vllm_metrics import logger_of

            return [logger_of({"model": self.model.name, "version": os.path.basename(self.model.version_directory)})]
        except pb_utils.TritonModelException as error:
            if "metrics not supported" not in str(error):
                raise
            pb_utils.Logger.log_info(
                "the server has no metrics (--allow-metrics=false): those of vLLM are not reported"
            )
        except ImportError as error:
            pb_utils.Logger.log_warn(f"the metrics of this vLLM are not where they were, and are not reported: {error}")
        return []

    async def _stop(self):
        for task in list(self.running):
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        self.engine.shutdown()

    def _in_loop(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def _ask_health(self):
        """The engine's problem, or None."""
        try:
            await self.engine.check_health()
        except Exception as error:
            return error
        return None

    # Requests.

    async def _begin(self, requests):
        if self.checks_health and self.is_healthy:
            trouble = await self._ask_health()
            if trouble is not None:
                await self._give_up(trouble)
        for request in requests:
            answer = _Answer(request)
            if not self.is_healthy:
                answer.fail(UNHEALTHY, "UNAVAILABLE")
                continue
            task = self.loop.create_task(self._serve(request, answer))
            self.running[task] = answer
            task.add_done_callback(self.running.pop)
        if self.running and (self.watcher is None or self.watcher.done()):
            self.watcher = self.loop.create_task(self._watch())

    async def _give_up(self, trouble):
        """Unloads this model. Requests in the engine would never end, and an unload waits for them."""
        self.is_healthy = False
        name = self.model.name
        pb_utils.Logger.log_error(
            f"the vLLM engine of model '{name}' is not healthy, and the model is unloaded: {type(trouble).__name__}:"
            f" {trouble}"
        )
        for task in list(self.running):
            task.cancel()
        try:
            # In a thread, because it waits for a response of the server.
            await self.loop.run_in_executor(None, pb_utils.unload_model, name)
        except pb_utils.TritonModelException as error:
            pb_utils.Logger.log_error(f"model '{name}' cannot unload itself: {error}")

    async def _watch(self):
        """Cancels the tasks of disconnected clients while there are tasks."""
        told = set()
        while self.running:
            for task, answer in list(self.running.items()):
                if task not in told and answer.is_cancelled():
                    told.add(task)
                    task.cancel()
            told.intersection_update(self.running)
            await asyncio.sleep(CANCELLED_EVERY_SECONDS)

    async def _serve(self, request, answer):
        number = uuid.uuid4().hex
        try:
            await self._answer(request, answer, number)
        except asyncio.CancelledError:
            await self.engine.abort(number)
            answer.fail(*(("Request was cancelled", "CANCELLED") if self.is_healthy else (UNHEALTHY, "UNAVAILABLE")))
        except requests_of.UnknownLora as error:
            answer.fail(text_of(error), error.code)
        except RequestError as error:
            answer.fail(f"Error generating stream: {text_of(error)}", error.code)
        except Exception as error:
            text, code = requests_of.failure_of(error)
            if code == "INTERNAL":
                pb_utils.Logger.log_error(f"a request of model '{self.model.name}' failed: {one_line(error)}")
            answer.fail(f"Error generating stream: {text}", code)

    async def _answer(self, request, answer, number):
        task, kind = (
            ("embed", requests_of.Embedding)
            if pb_utils.get_input_tensor_by_name(request, "embedding_request")
            else ("generate", requests_of.Generation)
        )
        if self.tasks is not None and task not in self.tasks:
            raise RequestError(f"Model {self.model.name} does not support '{task}' request", "INVALID_ARG")
        asked = kind(request, self.loras)
        last = None
        async for last in asked.start(self.engine, number, self.first_token):
            if asked.streams:
                answer.send(asked.response(last), last.finished)
        if last is None or (asked.streams and not last.finished):
            raise RequestError("the engine ended the request before its last output")
        if not asked.streams:
            answer.send(asked.response(last), True)


class _Answer:
    """The responses of a request: none after the final one."""

    def __init__(self, request):
        self._sender = request.get_response_sender()
        self._is_over = False
        self.is_cancelled = self._sender.is_cancelled

    def send(self, response, is_last):
        self._is_over = is_last
        self._sender.send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if is_last else 0)

    def fail(self, message, code):
        if not self._is_over:
            self.send(
                pb_utils.InferenceResponse(error=pb_utils.TritonError(message, getattr(pb_utils.TritonError, code))),
                True,
            )


def _choose_device(arguments, args):
    """An instance on a GPU sees only that one. Rule and text are those of Triton's backend."""
    if args["model_instance_kind"] != "GPU":
        return
    if int(arguments.get("tensor_parallel_size", 1)) * int(arguments.get("pipeline_parallel_size", 1)) > 1:
        raise LoadError(
            "KIND_GPU is currently for single-GPU models, please specify KIND_MODEL in the model's config.pbtxt for"
            " multi-GPU models"
        )
    os.environ["CUDA_VISIBLE_DEVICES"] = args["model_instance_device_id"]
