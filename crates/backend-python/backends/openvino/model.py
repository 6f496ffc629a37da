"""The backend `openvino`: IR, ONNX and other formats of OpenVINO, run by the user's own openvino
(docs/spec/backends-native.md, 6).

Each instance is a process with a compiled model of its own. Requests of a batch run in one call: inputs are tensors
over the memory of the request, or over one concatenation, and outputs are views of the framework's memory, split by
rows.

Invariant: every input of the model is set before each run, so that no run sees data of another request.
"""
import numpy as np

import nereid_openvino_model as models
import triton_python_backend_utils as pb_utils
from nereid_runner.tensor import BF16, of_memory
from nereid_shared import Arrays, Model, RequestError, framework, run_together, text_of

FILE = "model.xml"
#: Default of `max_batch_size` for models that can batch, after configuration and `default-max-batch-size`.
MAX_BATCH_SIZE = 4
SCHEDULERS = {"dynamic_batching", "sequence_batching"}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        model = Model.to_complete(auto_complete_model_config, FILE)
        config = model.config
        if config["input"] and config["output"] and (model.max_batch_size == 0 or SCHEDULERS & config.keys()):
            # The file cannot add anything.
            return auto_complete_model_config
        ov = framework("openvino", "OpenVINO", model)
        read = models.read(ov, ov.Core(), model, FILE)
        _complete(ov, model, read, auto_complete_model_config)
        return auto_complete_model_config

    def initialize(self, args):
        self.model = model = Model(args)
        self.ov = ov = framework("openvino", "OpenVINO", model)
        device, settings = models.settings_of(ov, model)
        core = ov.Core()
        extension = model.parameter("CPU_EXTENSION_PATH")
        if extension:
            models.attempt("loading custom CPU extensions", core.add_extension, extension)
        self.pads = models.is_yes(model, "ENABLE_BATCH_PADDING") and model.max_batch_size > 0
        batch = model.max_batch_size if self.pads else -1
        read = models.fit(ov, models.read(ov, core, model, FILE), model, batch)
        settings = models.supported(core, device, settings, model)
        if settings:
            models.attempt("configuring openvino core", core.set_property, device, settings)
        batches = model.max_batch_size > 0 and not models.is_yes(model, "SKIP_OV_DYNAMIC_BATCHSIZE")
        compiled = models.attempt("loading model", core.compile_model, read, device, {"ALLOW_AUTO_BATCHING": batches})
        self.request = models.attempt("creating infer request object", compiled.create_infer_request)
        inputs, outputs = model.tensors()
        self.inputs = models.indices(compiled.inputs, "input", inputs, model.name)
        self.outputs = models.indices(compiled.outputs, "output", outputs, model.name)
        self.bounds = models.bounds_of(compiled.inputs, self.inputs, inputs)
        self.arrays = _Tensors(model, inputs, outputs)
        # Variables of the model would carry data from one client's request to another's. Sequences keep them, as in
        # Triton.
        self.forgets = "sequence_batching" not in model.config and len(self.request.query_state()) > 0

    def execute(self, requests):
        return run_together(self.model, requests, self._run, self.arrays)

    def _run(self, inputs):
        request = self.request
        if len(inputs) != len(self.inputs):
            missing = next(name for name in self.inputs if name not in inputs)
            raise RequestError(
                f"input '{missing}' of model '{self.model.name}' is left out, and OpenVINO needs every input",
                "INVALID_ARG",
            )
        rows = None
        try:
            for name, array in inputs.items():
                if self.pads:
                    rows = len(array)
                    array = np.concatenate(
                        [array, np.zeros((self.model.max_batch_size - rows, *array.shape[1:]), array.dtype)]
                    )
                if name in self.bounds:
                    models.check_shape(name, array.shape, self.bounds[name], self.model)
                request.set_input_tensor(self.inputs[name], self.arrays.tensor_of(self.ov, name, array))
            if self.forgets:
                request.reset_state()
            made = tuple(request.infer(share_inputs=True, share_outputs=True).values())
        except RequestError:
            raise
        except Exception as error:
            raise RequestError(f"openvino error in running inference : {text_of(error)}") from error
        # Views of memory that the next run overwrites.
        values = {name: made[at] for name, at in self.outputs.items()}
        return {name: value[:rows] for name, value in values.items()} if self.pads else values


class _Tensors(Arrays):
    """Tensors of OpenVINO are numpy arrays, except BF16, which numpy lacks: those are arrays of their bits."""

    def __init__(self, model, inputs, outputs):
        super().__init__(model)
        self.bits = {tensor["name"] for tensor in inputs + outputs if tensor["data_type"] == "TYPE_BF16"}

    def read(self, tensor):
        return tensor._array if tensor.name() in self.bits else tensor.as_numpy()

    def tensor_of(self, ov, name, array):
        """A tensor of OpenVINO over an array."""
        return (
            ov.Tensor(array, array.shape, ov.Type.bf16) if name in self.bits else ov.Tensor(array, shared_memory=True)
        )

    def finish(self, name, array):
        if name in self.bits:
            array = array.view(np.uint16)
        return array.copy() if self.runs_again else array

    def write(self, name, array):
        return of_memory(name, BF16, np.ascontiguousarray(array)) if name in self.bits else pb_utils.Tensor(name, array)


def _complete(ov, model, read, config):
    """Completes the configuration from the file by Triton's rules, but each dim by itself (there a variable dim makes
    all of them -1)."""
    name = model.name
    # Given dims were written with a batch dimension, or without one.
    is_open = not model.config["input"] and not model.config["output"]
    can_batch = models.can_batch(ov, read)
    size = model.number("nereid.default_max_batch_size", MAX_BATCH_SIZE)
    if can_batch and model.max_batch_size == 0 and is_open and size > 0:
        config.set_max_batch_size(size)
        pb_utils.Logger.log_warn(
            f"autofilled max_batch_size to {size} for model '{name}' since batching is supported but no max_batch_size"
            " is specified in model configuration. Must specify max_batch_size to utilize autofill with a larger max"
            " batch size"
        )
    batch = config.as_dict()["max_batch_size"]
    if can_batch and batch > 1 and not SCHEDULERS & config.as_dict().keys():
        config.set_dynamic_batching()
    if not can_batch and batch > 0:
        pb_utils.Logger.log_warn(
            f"model layout for model {name} does not support batching while non-zero max_batch_size is specified"
        )
    for field, ports, add in (("input", read.inputs, config.add_input), ("output", read.outputs, config.add_output)):
        if model.config[field]:
            continue
        for port in ports:
            shape = models.shape_of(port, field, name)
            add(
                {
                    "name": port.any_name,
                    "data_type": models.data_type_of(ov, port, field, name),
                    "dims": shape[1:] if batch > 0 else shape,
                }
            )
