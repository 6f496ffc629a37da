"""A SavedModel and its configuration: signatures, Triton's parameters, auto-completion, errors."""
import os
from typing import NamedTuple

import triton_python_backend_utils as pb_utils
from nereid_shared import LoadError, dims_of

FILE = "model.savedmodel"
#: Default of `max_batch_size` for models that can batch, after configuration and `default-max-batch-size`.
MAX_BATCH_SIZE = 4
SCHEDULERS = {"dynamic_batching", "sequence_batching"}

#: Datatypes of TensorFlow and of configurations.
TYPES = {
    "DT_BOOL": "TYPE_BOOL", "DT_UINT8": "TYPE_UINT8", "DT_UINT16": "TYPE_UINT16", "DT_UINT32": "TYPE_UINT32",
    "DT_UINT64": "TYPE_UINT64", "DT_INT8": "TYPE_INT8", "DT_INT16": "TYPE_INT16", "DT_INT32": "TYPE_INT32",
    "DT_INT64": "TYPE_INT64", "DT_HALF": "TYPE_FP16", "DT_FLOAT": "TYPE_FP32", "DT_DOUBLE": "TYPE_FP64",
    "DT_STRING": "TYPE_STRING",
}  # fmt: skip


def text_of(error):
    """TensorFlow's error text without its stack frames."""
    return str(getattr(error, "message", None) or error).strip() or type(error).__name__


def attempt(function, *arguments, **named):
    """Calls TensorFlow; an exception becomes the error of the load, with its text, as in Triton."""
    try:
        return function(*arguments, **named)
    except Exception as error:
        raise LoadError(text_of(error)) from None


# Parameters.


def threads_of(model):
    """Session settings from parameters, checked before anything is loaded."""
    if model.number("MAX_SESSION_SHARE_COUNT", 1) <= 0:
        raise LoadError(
            f"parameter 'MAX_SESSION_SHARE_COUNT' must be positive number for TensorFlow model '{model.name}'"
        )
    intra, inter = model.number("TF_NUM_INTRA_THREADS"), model.number("TF_NUM_INTER_THREADS")
    if intra < 0:
        raise LoadError(
            f"parameter 'TF_NUM_INTRA_THREADS' must be non-negative number for TensorFlow model '{model.name}'"
        )
    # In Triton all sessions share the threads of one process; here the processes share the same number.
    usual = max(1, len(os.sched_getaffinity(0)) // max(1, model.instances("KIND_CPU")))
    return {
        "intra_op_parallelism_threads": intra or usual,
        "inter_op_parallelism_threads": inter or usual,
        "use_per_session_threads": model.flag("TF_USE_PER_SESSION_THREADS"),
    }


def settings_of(tf, model, threads, devices):
    """A `ConfigProto`. `devices`: the number of devices of a kind, or the only visible GPU."""
    settings = tf.compat.v1.ConfigProto(allow_soft_placement=True, device_count=devices.get("count"), **threads)
    # Allocates memory of a GPU as needed, not all of it at the start.
    settings.gpu_options.allow_growth = True
    settings.gpu_options.visible_device_list = devices.get("visible", "")
    level = model.config.get("optimization", {}).get("graph", {}).get("level", 0)
    if level:
        # -1, 1 and 2 are OFF, ON_1 and ON_2 of XLA.
        settings.graph_options.optimizer_options.global_jit_level = max(-1, min(level, 2))
    return settings


# The SavedModel.


class Saved:
    """A SavedModel whose tagged graph is read, but not loaded yet."""

    def __init__(self, model):
        # The public function is deprecated and logs that at each load.
        from tensorflow.python.saved_model.loader_impl import SavedModelLoader

        path = model.file(FILE)
        if not os.path.exists(path):
            raise LoadError(f"unable to find '{path}' for model '{model.name}'")
        self.tag = model.parameter("TF_GRAPH_TAG") or "serve"
        self._loader = attempt(SavedModelLoader, path)
        self.graph = attempt(self._loader.get_meta_graph_def_from_tags, [self.tag])

    def load(self, session):
        self._loader.load(session, [self.tag])
        # Saved by TensorFlow 2: otherwise the model's own operations initialise variables without a value.
        if self.graph.HasField("object_graph_def"):
            _fill_originals(session)


def _fill_originals(session):
    """Sets variables of Keras 3. For its models `tf.saved_model.save` restores copies only, which are initialised from
    the variables that functions read."""
    from tensorflow import raw_ops

    pairs = []
    for operation in session.graph.get_operations():
        if operation.type == "AssignVariableOp":
            copy, value = operation.inputs
            if value.op.type == "ReadVariableOp" and value.op.inputs[0].op.type == "VarHandleOp":
                pairs.append((value.op.inputs[0], copy, value.dtype))
    are_filled = session.run(
        [[raw_ops.VarIsInitializedOp(resource=one) for one in (original, copy)] for original, copy, _ in pairs]
    )
    session.run([
        raw_ops.AssignVariableOp(resource=original, value=raw_ops.ReadVariableOp(resource=copy, dtype=kind))
        for (original, copy, kind), filled in zip(pairs, are_filled) if filled == [False, True]
    ])  # fmt: skip


class Tensor(NamedTuple):
    """An input or output of a signature. `shape` is empty if unknown; for clients a scalar is a vector of one element,
    because Triton has no scalars."""

    tensor: str
    kind: str
    shape: list
    is_scalar: bool


class Signature:
    """The signature of a graph by its keys, and its comparison with the configuration."""

    def __init__(self, graph, model):
        self.model = model
        signatures = graph.signature_def
        wanted = model.parameter("TF_SIGNATURE_DEF")
        key = wanted or "serving_default"
        if key not in signatures and not wanted:
            others = sorted(
                name for name in signatures if name not in ("__saved_model_init_op", "__saved_model_train_op")
            )
            if others:
                pb_utils.Logger.log_warn(
                    f"model '{model.name}': unable to find serving signature '{key}', using signature '{others[0]}'"
                )
                key = others[0]
        if key not in signatures:
            raise LoadError(
                f"unable to load model '{model.name}', expected '{key}' signature; it has:"
                f" {', '.join(sorted(signatures))}"
            )
        self.inputs = self._tensors("input", signatures[key].inputs)
        self.outputs = self._tensors("output", signatures[key].outputs)

    def _tensors(self, field, infos):
        from tensorflow.core.framework.types_pb2 import DataType

        made = {}
        for name in sorted(infos):
            info = infos[name]
            kind = DataType.Name(info.dtype)
            if info.WhichOneof("encoding") != "name":
                raise LoadError(f"unable to process {field} '{name}' for '{self.model.name}', it is no dense tensor")
            if kind not in TYPES:
                raise LoadError(
                    f"unable to process {field} '{name}' for '{self.model.name}', unsupported datatype '{kind}'"
                )
            shape = [dim.size for dim in info.tensor_shape.dim]
            is_scalar = not shape and not info.tensor_shape.unknown_rank
            made[name] = Tensor(info.name, TYPES[kind], [1] if is_scalar else shape, is_scalar)
        return made

    def can_batch(self):
        return all(
            tensor.is_scalar or tensor.shape[:1] in ([], [-1])
            for tensor in [*self.inputs.values(), *self.outputs.values()]
        )

    def compare(self):
        """Rejects a configuration that does not fit, by Triton's rules and with its texts."""
        model = self.model
        inputs, outputs = model.tensors()
        for tensor in inputs + outputs:
            if tensor["data_type"] not in TYPES.values():
                raise LoadError(
                    f"unsupported datatype '{tensor['data_type']}' for tensor '{tensor['name']}' for model"
                    f" '{model.name}'"
                )
        controls = [tensor["name"] for tensor in model.config.get("sequence_batching", {}).get("control_input", [])]
        for tensor in inputs:
            if tensor["name"] in controls and tensor["name"] not in self.inputs:
                raise LoadError(
                    f"configuration specified sequence control '{tensor['name']}', but model does not provide that"
                    " input"
                )
            self._require(tensor, "input", self.inputs)
        if len(inputs) != len(self.inputs):
            raise LoadError(
                f"unable to load model '{model.name}', configuration expects {len(inputs)} inputs, model provides"
                f" {len(self.inputs)}"
            )
        for tensor in inputs:
            self._compare(tensor, "input", self.inputs[tensor["name"]])
        for tensor in outputs:
            self._require(tensor, "output", self.outputs)
            self._compare(tensor, "output", self.outputs[tensor["name"]])

    def _require(self, tensor, field, there):
        if tensor["name"] not in there:
            raise LoadError(
                f"unexpected inference {field} '{tensor['name']}', allowed {field}s are: {', '.join(there)}"
            )

    def _compare(self, tensor, field, own):
        model, name = self.model, tensor["name"]
        batches = model.max_batch_size > 0
        dims = dims_of(tensor)
        start = f"model '{model.name}', tensor '{name}': "
        if own.shape:
            if batches and own.shape[0] != -1:
                raise LoadError(
                    f"{start}for the model to support batching the shape should have at least 1 dimension and the first"
                    " dimension must be -1; but shape expected by the model is"
                    f" {_shown([] if own.is_scalar else own.shape)}"
                )
            full = [-1, *dims] if batches else list(dims)
            # An input may be narrower than the model; an output may not.
            fits = len(own.shape) == len(full) and all(
                actual == expected or (field == "input" and actual == -1) for actual, expected in zip(own.shape, full)
            )
            if not fits:
                how = (
                    "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape,"
                    " making complete shape"
                    if batches
                    else "shape"
                )
                raise LoadError(
                    f"{start}the model expects {len(own.shape)} dimensions (shape {_shown(own.shape)}) but the model"
                    f" configuration specifies {len(full)} dimensions ({how} {_shown(full)})"
                )
        if own.kind != tensor["data_type"]:
            raise LoadError(
                f"unable to load model '{model.name}', configuration expects datatype {tensor['data_type']} for {field}"
                f" '{name}', model provides {own.kind}"
            )


def _shown(dims):
    return "[" + ",".join(map(str, dims)) + "]"


# What the configuration leaves out.


def complete(config, model, signature):
    """Completes the configuration from the signature by Triton's rules. `compare` reports names that the signature does
    not have."""
    own = config.as_dict()
    batches = _complete_batching(config, model, signature)
    controls = {tensor["name"] for tensor in own.get("sequence_batching", {}).get("control_input", [])}
    controls.update(name for one in own.get("batch_input", []) for name in one.get("target_name", []))
    for field, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        is_open = field == "input" or not own[field]
        given = {tensor["name"]: tensor for tensor in own[field]}
        for name, tensor in tensors.items():
            if name in given:
                _fill(given[name], tensor, batches, model.name)
            elif is_open and name not in controls:
                own[field].append(_fill({"name": name}, tensor, batches, model.name))


def _complete_batching(config, model, signature):
    """Returns True if dims omit the first dimension."""
    name = model.name
    can_batch = signature.can_batch()
    if not can_batch and model.max_batch_size > 0:
        raise LoadError(
            f"unable to autofill for '{name}', configuration specified max-batch {model.max_batch_size} but model"
            " signature does not support batching"
        )
    size = model.number("nereid.default_max_batch_size", MAX_BATCH_SIZE)
    if can_batch and model.max_batch_size == 0 and size > 0 and _omits_batch(model, signature):
        config.set_max_batch_size(size)
        # Triton's spelling, which log filters match.
        pb_utils.Logger.log_warn(
            f"autofilled max_batch_size to {size} for model '{name}' since batching is supporrted but no max_batch_size"
            " is specified in model configuration. Must specify max_batch_size to utilize autofill with a larger max"
            " batch size"
        )
    batch = config.as_dict()["max_batch_size"]
    if batch > 1 and not SCHEDULERS & config.as_dict().keys():
        config.set_dynamic_batching()
    return batch > 0


def _omits_batch(model, signature):
    """True if the configuration's dims omit the batch dimension; omitted dims count as such."""
    # To be completed. A scalar has no rows.
    open_ones = [*signature.inputs.values()] + ([] if model.config["output"] else [*signature.outputs.values()])
    if any(tensor.is_scalar for tensor in open_ones):
        return False
    answers, is_undecided = set(), not model.config["input"] and not model.config["output"]
    for field, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        for tensor in model.config[field]:
            if tensor.get("allow_ragged_batch"):
                return True
            own = tensors.get(tensor["name"])
            if own is None or not own.shape:
                continue
            if own.is_scalar:
                answers.add(False)
            elif dims_of(tensor):
                answers.add(len(dims_of(tensor)) == len(own.shape) - 1)
            else:
                is_undecided = True
    if len(answers) > 1:
        raise LoadError(
            f"unable to autofill for '{model.name}', model tensor configurations are contradicting each other in terms"
            " of whether batching is supported"
        )
    return True in answers or (not answers and is_undecided)


def _fill(given, tensor, batches, model):
    """The configuration's tensor, completed."""
    if given.get("data_type", "TYPE_INVALID") == "TYPE_INVALID":
        given["data_type"] = tensor.kind
    if not given.get("dims"):
        if not tensor.shape or (batches and tensor.is_scalar):
            raise LoadError(
                f"Unable to autofill for '{model}': the rank of model tensor '{given['name']}' is 0 and dimensions are"
                " not defined"
            )
        dims = tensor.shape[1:] if batches else tensor.shape
        given["dims"] = dims or [1]
        if not dims:
            # Dims may not be empty.
            given["reshape"] = {"shape": []}
    return given
