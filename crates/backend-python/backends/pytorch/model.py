"""The backend `pytorch`: TorchScript files, AOT-Inductor packages and classes of model.py, run by the user's own torch
(docs/spec/backends-native.md, 4).

Each instance is a process with a model of its own. Requests of a batch run in one call: their inputs are concatenated
on the host and copied to the device once; outputs are copied back once and split by rows. Inputs are views of memory
that only this request has, so a model that writes into an input changes no data of the client. Devices are only used
through `.to(device)`.

Not here: shapes and datatypes, which must be in the configuration, because they are not in the file.
"""
import importlib.util
import inspect
import json
import os
import sys

import numpy as np

import nereid_pytorch_files as files
import nereid_pytorch_names as naming
import triton_python_backend_utils as pb_utils
from nereid_runner.tensor import BF16, CODES, of_memory
from nereid_shared import LoadError, Model, RequestError, dims_of, framework, gpu_of, run_together, text_of

#: Datatypes of configurations and of torch. Unsigned ones of more than 8 bits came with torch 2.3.
TYPES = {
    "TYPE_BOOL": "bool", "TYPE_UINT8": "uint8", "TYPE_UINT16": "uint16", "TYPE_UINT32": "uint32",
    "TYPE_UINT64": "uint64", "TYPE_INT8": "int8", "TYPE_INT16": "int16", "TYPE_INT32": "int32", "TYPE_INT64": "int64",
    "TYPE_FP16": "float16", "TYPE_FP32": "float32", "TYPE_FP64": "float64", "TYPE_BF16": "bfloat16",
}  # fmt: skip
STRING = "TYPE_STRING"

EXPORTED = (
    "is a program that torch.export.save wrote, which has to be compiled before it is served. Make a package of it, on"
    ' a machine as the one that serves it: python -c "import torch;'
    " torch._inductor.aoti_compile_and_package(torch.export.load('{file}'), package_path='model.pt2')\""
)
WEIGHTS = (
    "has weights and no graph (torch.save(model.state_dict())). Put the model's class into a model.py beside it, or"
    " write a file that has both: torch.jit.script(model.eval()).save('model.pt')"
)
MODULE = (
    "is a pickle of a model whose code is elsewhere (torch.save(model)). Write a file that has both, where that code"
    " is: torch.jit.script(model.eval()).save('model.pt')"
)


class TritonPythonModel:
    def initialize(self, args):
        self.model = model = Model(args)
        self.torch = torch = framework("torch", "PyTorch", model)
        self._read_tensors()
        try:
            self._set_up(args)
            self._log_settings(args["model_instance_name"])
            self.run = self._load()
        except LoadError:
            raise
        except files.NotAModel as error:
            raise LoadError(f"failed to load model '{model.name}': '{self.file}' {error}") from None
        except Exception as error:
            raise LoadError(f"failed to load model '{model.name}': {text_of(error)}") from error
        # Batches run on this thread, which has nothing else to do: the mode is entered once, and not left.
        self.entered = torch.inference_mode() if model.flag("INFERENCE_MODE", True) else torch.no_grad()
        self.entered.__enter__()
        self.cleans = model.flag("ENABLE_CACHE_CLEANING") and self.device.type == "cuda"

    def execute(self, requests):
        return run_together(self.model, requests, self._run, self)

    # What the configuration says.

    def _read_tensors(self):
        """Reads names and datatypes of inputs and outputs from the configuration, sequence controls and states."""
        name = self.model.name
        inputs, outputs = self.model.tensors()
        for tensor, field in [(tensor, "input") for tensor in inputs] + [(tensor, "output") for tensor in outputs]:
            kind = tensor["data_type"]
            if kind == STRING:
                # Beyond Triton: with a batch, one string for each row.
                if self._rank(tensor) > 1 and not (self.model.max_batch_size > 0 and dims_of(tensor) == [1]):
                    raise LoadError(
                        f"Triton only supports 1 dimensional List of String as {field} for '{tensor['name']}' for model"
                        f" '{name}'"
                    )
            elif not hasattr(self.torch, TYPES.get(kind, "")):
                part = tensor.get("part", field)
                if part == "control":
                    raise LoadError(f"input '{tensor['name']}' type '{kind}' is not supported by PyTorch.")
                raise LoadError(f"unsupported datatype {kind} for {part} '{tensor['name']}' for model '{name}'")
        self.inputs = {tensor["name"]: tensor["data_type"] for tensor in inputs}
        self.outputs = {tensor["name"]: tensor["data_type"] for tensor in outputs}
        self.types = {getattr(self.torch, of): kind for kind, of in TYPES.items() if hasattr(self.torch, of)}
        self.ranks = {tensor["name"]: self._rank(tensor) for tensor in outputs}

    def _rank(self, tensor):
        return len(dims_of(tensor)) + (self.model.max_batch_size > 0)

    def _set_up(self, args):
        """Sets device, threads and options of the process, which has no other model."""
        torch, model = self.torch, self.model
        self.kind = args["model_instance_kind"]
        self.device = self._device_of(args)
        self.file, self.is_class = self._file()
        threads, between = (
            ("NUM_THREADS", "NUM_INTEROP_THREADS")
            if self.is_class
            else ("INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT")
        )
        # Triton's defaults: one thread for classes, else those of the machine, which the instances share here.
        usual = 1 if self.is_class else max(1, torch.get_num_threads() // max(1, model.instances("KIND_CPU")))
        torch.set_num_threads(model.number(threads, usual, least=1))
        if self.is_class or model.parameter(between) is not None:
            torch.set_num_interop_threads(model.number(between, 1, least=1))
        torch.backends.cudnn.enabled = not model.flag("DISABLE_CUDNN")
        for key, function in (
            ("ENABLE_JIT_EXECUTOR", "_jit_set_profiling_executor"),
            ("ENABLE_JIT_PROFILING", "_jit_set_profiling_mode"),
            ("ENABLE_TENSOR_FUSER", "_jit_set_texpr_fuser_enabled"),
        ):
            if model.parameter(key) is not None:
                getattr(torch._C, function)(model.flag(key))
        if model.parameter("DISABLE_OPTIMIZED_EXECUTION") is not None:
            torch._C._set_graph_executor_optimize(not model.flag("DISABLE_OPTIMIZED_EXECUTION"))
        if model.flag("ENABLE_WEIGHT_SHARING"):
            pb_utils.Logger.log_info(
                f"model '{model.name}': ENABLE_WEIGHT_SHARING has no effect, each instance is a process with weights of"
                " its own"
            )

    def _log_settings(self, instance):
        """Logs the settings of a version, in Triton's words: its first instance does."""
        model, torch = self.model, self.torch
        groups = model.config.get("instance_group") or [{}]
        if instance != f"{groups[0].get('name')}_0":
            return
        settings = {
            "Optimized execution": not model.flag("DISABLE_OPTIMIZED_EXECUTION"),
            "Cache Cleaning": model.flag("ENABLE_CACHE_CLEANING"),
            "Inference Mode": model.flag("INFERENCE_MODE", True),
            "cuDNN": not model.flag("DISABLE_CUDNN"),
        }
        lines = [f"{what} is {'enabled' if on else 'disabled'}" for what, on in settings.items()]
        for kind, count in (("Intra", torch.get_num_threads), ("Inter", torch.get_num_interop_threads)):
            if model.parameter(f"{kind.upper()}_OP_THREAD_COUNT") is not None:
                lines.append(f"{kind} op thread count is set to {count()}")
        for line in lines:
            pb_utils.Logger.log_info(f"{line} for model instance '{model.name}'")

    def _device_of(self, args):
        torch, model = self.torch, self.model
        if self.kind != "GPU":
            return torch.device("cpu")
        why = None
        if not torch.cuda.is_available():
            why = (
                f"torch {torch.__version__} of {sys.executable} cannot use GPUs"
                f" ({'it was built without CUDA' if torch.version.cuda is None else 'CUDA is not available to it'})"
            )
        return torch.device(f"cuda:{args['model_instance_device_id']}" if gpu_of(args, model, why, "torch") else "cpu")

    # The file.

    def _file(self):
        """The model's file, and whether it is a class of a model.py."""
        model = self.model
        path = model.file("model.pt")
        code = f"{model.version_directory}/model.py"
        if path.endswith(".py") or not os.path.exists(path) and os.path.isfile(code):
            path = path if path.endswith(".py") else code
            if not os.path.isfile(path):
                raise LoadError(f"unable to find '{path}' for model '{model.name}'")
            return path, True
        if not os.path.isfile(path):
            raise LoadError(f"unable to find '{path}' for model '{model.name}'")
        # Weights beside a model.py belong to its class.
        self.file = path
        if os.path.isfile(code) and files.kind_of(path) == files.WEIGHTS:
            return code, True
        return path, False

    def _load(self):
        """Loads the function that runs a batch."""
        if self.is_class:
            return self._load_class()
        kind = files.kind_of(self.file)
        if kind == files.TORCHSCRIPT:
            return self._load_script()
        if kind == files.PACKAGE:
            return self._load_package()
        shown = {files.PROGRAM: EXPORTED, files.WEIGHTS: WEIGHTS, files.MODULE: MODULE}[kind]
        raise files.NotAModel(shown.replace("{file}", self.file))

    def _load_script(self):
        torch = self.torch
        if self.kind == "MODEL":
            module = torch.jit.load(self.file)
        else:
            module = torch.jit.load(self.file, map_location=self.device)
        self._evaluate(module)
        schema = module._c._get_method("forward").schema.arguments[1:]
        self.by_dict = len(schema) == 1 and schema[0].type.kind() == "DictType"
        required = [(at, argument.name) for at, argument in enumerate(schema) if not argument.has_default_value()]
        self._bind([argument.name for argument in schema], required)
        return module

    def _load_package(self):
        torch = self.torch
        load = getattr(getattr(torch, "_inductor", None), "aoti_load_package", None)
        if load is None:
            try:
                from torch._inductor import aoti_load_package as load
            except ImportError:
                raise LoadError(
                    f"failed to load model '{self.model.name}': '{self.file}' is a package of AOT-Inductor, which torch"
                    f" 2.6 and later run; {sys.executable} has torch {torch.__version__}"
                ) from None
        if self.device.type == "cuda":
            loaded = load(self.file, device_index=self.device.index)
        else:
            loaded = load(self.file)
        self._bind(None, None)
        return loaded

    def _load_class(self):
        """The class of a model.py, with the weights beside it."""
        torch, model = self.torch, self.model
        directory = os.path.dirname(self.file)
        sys.path.append(directory)
        spec = importlib.util.spec_from_file_location("nereid_pytorch_class", self.file)
        code = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = code
        spec.loader.exec_module(code)
        module = self._class_in(code)()
        configured = model.file("model.pt")
        own = os.path.splitext(self.file)[0] + ".pt"
        weights = configured if not configured.endswith(".py") else own
        if os.path.isfile(weights):
            found = torch.load(weights, map_location="cpu", weights_only=True)
            module.load_state_dict(found)
        if self.kind != "MODEL":
            module.to(self.device)
        else:
            first = next(module.parameters(), None)
            self.device = self.device if first is None else first.device
        module.eval()
        arguments = list(inspect.signature(module.forward).parameters.values())
        if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in arguments):
            self._bind(None, None)
        else:
            self._bind(
                [one.name for one in arguments],
                [(at, one.name) for at, one in enumerate(arguments) if one.default is one.empty],
            )
        options = model.parameter("TORCH_COMPILE_OPTIONAL_PARAMETERS")
        if options is None:
            return module
        try:
            options = json.loads(options)
            if not isinstance(options, dict):
                raise ValueError("it is no object")
        except ValueError as error:
            raise LoadError(
                f"parameter 'TORCH_COMPILE_OPTIONAL_PARAMETERS' of model '{model.name}' must be a JSON object: {error}"
            ) from None
        if "model" in options:
            raise LoadError("'model' is not an optional parameter for torch.compile")
        if not hasattr(torch, "compile"):
            raise LoadError(
                f"failed to load model '{model.name}': torch.compile came with torch 2.0, and {sys.executable} has"
                f" torch {torch.__version__}"
            )
        return torch.compile(module, **options)

    def _class_in(self, code):
        kinds = [
            one
            for _, one in sorted(vars(code).items())
            if inspect.isclass(one) and issubclass(one, self.torch.nn.Module)
        ]
        # Classes that it imports are parts of its own.
        own = [one for one in kinds if one.__module__ == code.__name__] or kinds
        if not own:
            raise LoadError(f"Cannot find a subclass of torch.nn.Module in '{self.file}'")
        if len(own) > 1:
            names = ", ".join(one.__name__ for one in own)
            pb_utils.Logger.log_warn(
                f"model '{self.model.name}': model.py has several subclasses of torch.nn.Module ({names}), of which the"
                " first by name is served"
            )
        return own[0]

    def _evaluate(self, module):
        if getattr(module, "training", False):
            module.eval()

    by_dict = False

    def _bind(self, arguments, required):
        """Maps inputs to arguments and outputs to returned values."""
        model = self.model
        if self.by_dict:
            # One argument, a dictionary with the names as keys.
            self.arguments, warning = {name: name for name in self.inputs}, None
        else:
            self.arguments, warning = naming.arguments_of(list(self.inputs), arguments, model.name)
            mistake = naming.mistake_in(self.arguments, required, arguments, model.name)
            if mistake is not None:
                raise LoadError(mistake)
        self.values, second = naming.values_of(list(self.outputs), model.name)
        for text in (warning, second):
            if text is not None:
                pb_utils.Logger.log_warn(text)
        self.is_on_host = self.device.type == "cpu"
        # Most requests have all inputs, each of which is an argument, in the order of the configuration.
        self.usual = None
        if self.is_on_host and list(self.arguments.values()) == list(range(len(self.inputs))):
            self.usual = list(self.arguments)
        # Most models return one tensor.
        self.only = next(iter(self.values)) if list(self.values.values()) == [[0]] else None

    # A batch.

    def _run(self, inputs):
        if list(inputs) == self.usual:
            ordered, names = inputs.values(), {}
        else:
            ordered, names = self._arguments(inputs)
        try:
            made = self.run(names) if self.by_dict else self.run(*ordered, **names)
        except Exception as error:
            raise RequestError(f"PyTorch execute failure: {text_of(error)}") from error
        finally:
            if self.cleans:
                self.torch.cuda.empty_cache()
        if self.only is not None and isinstance(made, self.torch.Tensor):
            return {self.only: self._checked(self.only, made)}
        return self._values(made)

    def _arguments(self, inputs):
        """Arguments by position, and those by name."""
        positions, names = {}, {}
        for name, value in inputs.items():
            argument = self.arguments.get(name)
            if not (self.is_on_host or isinstance(value, list)):
                value = value.to(self.device)
            (positions if isinstance(argument, int) else names)[argument] = value
        if len(positions) and max(positions) >= len(positions):
            gap = next(at for at in range(len(positions) + 1) if at not in positions)
            missing = next((name for name, at in self.arguments.items() if at == gap), gap)
            raise RequestError(
                f"input '{missing}' of model '{self.model.name}' is left out, and a later one is not", "INVALID_ARG"
            )
        return [positions[at] for at in range(len(positions))], names

    def _values(self, made):
        """Returned values by the names of outputs."""
        if isinstance(made, dict) and all(name in made for name in self.outputs):
            return {name: self._checked(name, made[name]) for name in self.outputs}
        if isinstance(made, dict):
            by_key, made = made, list(made.values())
        else:
            by_key = None
            is_strings = isinstance(made, list) and (len(made) == 0 or isinstance(made[0], str))
            made = list(made) if isinstance(made, (tuple, list)) and not is_strings else [made]
        values = {}
        for name, (first, *rest) in self.values.items():
            if by_key is not None and first in by_key:
                value = by_key[first]
            elif isinstance(first, int) and first < len(made):
                value = made[first]
            else:
                text = (
                    f"The output {name} in the model configuration refers to an output index which doesn't exist. This"
                    f" model has {len(made)} outputs"
                )
                raise RequestError(text, "INVALID_ARG")
            for step in rest:
                try:
                    value = value[step]
                except (IndexError, KeyError, TypeError):
                    raise RequestError(
                        f"The output {name} in the model configuration refers to a value that the model does not"
                        f" return: there is no {step!r}",
                        "INVALID_ARG",
                    ) from None
            values[name] = self._checked(name, value)
        return values

    def _checked(self, name, value):
        expected = self.outputs[name]
        if isinstance(value, self.torch.Tensor):
            if value.dim() == 0:
                raise RequestError(f"output '{name}' is a scalar which is not supported.", "INVALID_ARG")
            found = self.types.get(value.dtype, f"TYPE_INVALID ({value.dtype})")
        elif isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
            found = STRING
        else:
            raise RequestError(
                "output must be of type Tensor, List[str] or Tuple containing one of these two types. Recieved type"
                f" {type(value).__name__}"
            )
        if found != expected:
            raise RequestError(
                f"configuration expects datatype {expected} for output '{name}', model provides {found}", "INVALID_ARG"
            )
        return value

    # How `run_together` handles tensors of torch.

    def read(self, tensor):
        """A torch tensor over the memory of the request; a list of str for strings."""
        kind = self.inputs.get(tensor.name())
        if kind == STRING:
            try:
                return [text.decode() for text in tensor.as_numpy().ravel().tolist()]
            except UnicodeDecodeError as error:
                raise RequestError(
                    f"input '{tensor.name()}' of model '{self.model.name}' has a text that is not UTF-8: {error}",
                    "INVALID_ARG",
                ) from None
        if kind == "TYPE_BF16":
            return self.torch.utils.dlpack.from_dlpack(tensor.to_dlpack())
        array = tensor.as_numpy()
        if not array.flags.writeable:
            # Torch has no read-only tensors, and a model may write into its inputs.
            array = array.copy()
        return self.torch.from_numpy(array)

    def join(self, tensors):
        kind = self.inputs.get(tensors[0].name())
        if kind == STRING:
            return [text for tensor in tensors for text in self.read(tensor)]
        if kind == "TYPE_BF16":
            return self.torch.cat([self.read(tensor) for tensor in tensors])
        return self.torch.from_numpy(np.concatenate([tensor.as_numpy() for tensor in tensors]))

    def finish(self, name, value):
        """An output on the host, as a contiguous array, so that its rows are; BF16 as its bits."""
        if self.outputs[name] == STRING:
            return list(value)
        try:
            if value.requires_grad:
                value = value.detach()
            value = (value if value.is_cpu else value.to("cpu")).contiguous()
            return (value.view(self.torch.int16) if self.outputs[name] == "TYPE_BF16" else value).numpy()
        except Exception as error:
            raise RequestError(f"PyTorch execute failure: output '{name}': {text_of(error)}") from error

    def write(self, name, value):
        kind = self.outputs[name]
        if kind == STRING:
            return pb_utils.Tensor(
                name,
                np.array([text.encode() for text in value], dtype=np.object_).reshape(
                    (-1,) + (1,) * (self.ranks[name] - 1)
                ),
            )
        return of_memory(name, BF16 if kind == "TYPE_BF16" else CODES[value.dtype], value)
