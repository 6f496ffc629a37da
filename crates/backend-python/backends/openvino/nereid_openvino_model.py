"""A model of OpenVINO and its configuration: reading it, settings from Triton's parameters, shapes and datatypes,
errors."""
import os

import triton_python_backend_utils as pb_utils
from nereid_shared import LoadError, RequestError, dims_of, text_of

#: Datatypes of configurations and their element types. Triton has no FP64 and BF16 here.
TYPES = {
    "TYPE_BOOL": "boolean", "TYPE_UINT8": "u8", "TYPE_UINT16": "u16", "TYPE_UINT32": "u32", "TYPE_UINT64": "u64",
    "TYPE_INT8": "i8", "TYPE_INT16": "i16", "TYPE_INT32": "i32", "TYPE_INT64": "i64", "TYPE_FP16": "f16",
    "TYPE_FP32": "f32", "TYPE_FP64": "f64", "TYPE_BF16": "bf16",
}  # fmt: skip


def attempt(what, function, *arguments):
    """Calls OpenVINO; an exception becomes the error of the load, with Triton's text."""
    try:
        return function(*arguments)
    except Exception as error:
        raise LoadError(f"openvino error in {what} : {text_of(error).strip()}") from None


def read(ov, core, model, default):
    path = model.file(default)
    if not os.path.exists(path):
        raise LoadError(f"unable to find '{path}' for model '{model.name}'")
    return attempt("reading model", core.read_model, path)


# Parameters.


def is_yes(model, key):
    """Switches of this backend: every value except YES is no."""
    return (model.parameter(key) or "").lower() == "yes"


def settings_of(ov, model):
    """`(device, properties)` from the model's parameters."""
    device = (model.parameter("TARGET_DEVICE") or "CPU").upper()
    settings = {}
    for key in ("INFERENCE_NUM_THREADS", "COMPILATION_NUM_THREADS"):
        if _lower(model, key):
            settings[key] = _number(model, key)
    if _lower(model, "HINT_BF16"):
        if not is_yes(model, "HINT_BF16"):
            raise _unexpected(model, "HINT_BF16", "YES")
        settings["INFERENCE_PRECISION_HINT"] = ov.Type.bf16
    # Beyond Triton: on a processor with BF16, OpenVINO computes in BF16 by itself, and nothing else turns that off.
    precision = _lower(model, "INFERENCE_PRECISION_HINT")
    if precision:
        if precision not in ("f32", "f16", "bf16"):
            raise _unexpected(model, "INFERENCE_PRECISION_HINT", "F32/F16/BF16")
        settings["INFERENCE_PRECISION_HINT"] = getattr(ov.Type, precision)
    streams = _lower(model, "NUM_STREAMS")
    if streams:
        settings["NUM_STREAMS"] = (
            streams.upper()
            if streams in ("auto", "numa")
            else _number(model, "NUM_STREAMS", "either AUTO/NUMA/<int_value>")
        )
    hint = _lower(model, "PERFORMANCE_HINT")
    if hint:
        if hint not in ("latency", "throughput", "cumulative_throughput"):
            raise _unexpected(model, "PERFORMANCE_HINT", "LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT")
        settings["PERFORMANCE_HINT"] = hint.upper()
    instances = model.instances("KIND_CPU")
    if device == "CPU" and instances > 1 and "INFERENCE_NUM_THREADS" not in settings:
        # In Triton all instances share the threads of one compiled model; here the processes share the same number.
        settings["INFERENCE_NUM_THREADS"] = max(1, len(os.sched_getaffinity(0)) // instances)
    return device, settings


def supported(core, device, settings, model):
    """The properties that a device supports; for others a warning is logged."""
    if not settings:
        return settings
    known = attempt("configuring openvino core", core.get_property, device, "SUPPORTED_PROPERTIES")
    for key in settings.keys() - set(known):
        pb_utils.Logger.log_warn(
            f"model '{model.name}': {key} has no effect, OpenVINO's device {device} does not have it"
        )
    return {key: value for key, value in settings.items() if key in known}


def _lower(model, key):
    return (model.parameter(key) or "").lower()


def _number(model, key, expected="a non-negative number"):
    text = _lower(model, key)
    if not (text.isascii() and text.isdigit()):
        raise _unexpected(model, key, expected)
    return int(text)


def _unexpected(model, key, expected):
    return LoadError(f"expected the parameter '{key}' to be {expected}, got {_lower(model, key)}")


# Tensors.


def shape_of(port, field, model):
    """Dims of an input or output, -1 where they vary."""
    shape = port.partial_shape
    if shape.rank.is_dynamic:
        raise LoadError(
            f"unable to load model '{model}', its {field} '{port.any_name}' has no fixed number of dimensions: write"
            " inputs and outputs into the configuration"
        )
    return [dim.get_length() if dim.is_static else -1 for dim in shape]


def data_type_of(ov, port, field, model):
    """The configuration's datatype of an input or output."""
    for kind, name in TYPES.items():
        if port.element_type == getattr(ov.Type, name):
            return kind
    raise LoadError(
        f"unsupported datatype {port.element_type.get_type_name()} for {field} '{port.any_name}' for model '{model}'"
    )


def can_batch(ov, read):
    """True if the layouts of all inputs and outputs have a batch dimension. Few files have layouts."""
    return all(ov.layout_helpers.has_batch(one.get_layout()) for one in [*read.get_parameters(), *read.get_results()])


def indices(ports, field, tensors, model):
    """Indices of the configuration's tensors among the model's."""
    places = {}
    for at, port in enumerate(ports):
        places.update(dict.fromkeys(port.names, at))
    for tensor in tensors:
        if tensor["name"] not in places:
            names = ", ".join(port.any_name for port in ports)
            raise LoadError(f"unexpected inference {field} '{tensor['name']}', allowed {field}s are: {names}")
    return {tensor["name"]: places[tensor["name"]] for tensor in tensors}


# Fitting.


def fit(ov, read, model, batch):
    """Applies the configuration to the model: shapes of inputs, and datatypes, which OpenVINO converts. `batch`: the
    batch size, -1 for any."""
    inputs, outputs = model.tensors()
    if len(read.inputs) != len(inputs):
        raise LoadError(
            f"unable to load model '{model.name}', configuration expects {len(inputs)} inputs, model provides"
            f" {len(read.inputs)}"
        )
    types = [(tensor, field) for field, tensors in (("input", inputs), ("output", outputs)) for tensor in tensors]
    for tensor, field in types:
        if tensor["data_type"] not in TYPES:
            raise LoadError(
                f"unsupported datatype {tensor['data_type']} for {field} '{tensor['name']}' for model '{model.name}'"
            )
        if tensor.get("optional"):
            raise LoadError(
                f"unable to load model '{model.name}', its input '{tensor['name']}' cannot be optional: OpenVINO needs"
                " every input"
            )
    places = {
        "input": indices(read.inputs, "input", inputs, model.name),
        "output": indices(read.outputs, "output", outputs, model.name),
    }
    reshapes = is_yes(model, "RESHAPE_IO_LAYERS")
    batches = model.max_batch_size > 0
    shapes = {}
    for tensor in inputs:
        at = places["input"][tensor["name"]]
        shape = read.inputs[at].partial_shape
        if reshapes:
            dims = dims_of(tensor)
            if any(dim == 0 or dim < -1 for dim in dims):
                raise LoadError(
                    "openvino backend does not support dimensions values other than `-1` or positive integers"
                )
            shapes[at] = [batch, *dims] if batches else list(dims)
            continue
        _compare(tensor, shape, model)
        if batches and shape.rank.is_static:
            if shape[0].is_dynamic:
                _require_rows(tensor, "input", shape[0], model)
            if batch > 0 or shape[0].is_static:
                shapes[at] = [batch, *list(shape)[1:]]
    if shapes:
        what = "setting shape" if reshapes else "setting max batch size"
        attempt(what, read.reshape, {at: ov.PartialShape(shape) for at, shape in shapes.items()})
    if not reshapes:
        for tensor in outputs:
            shape = read.outputs[places["output"][tensor["name"]]].partial_shape
            _compare(tensor, shape, model)
            if batches and shape.rank.is_static:
                _require_rows(tensor, "output", shape[0], model)
    steps = ov.preprocess.PrePostProcessor(read)
    changed = False
    for tensor, field in types:
        at = places[field][tensor["name"]]
        port = (read.inputs if field == "input" else read.outputs)[at]
        wanted = getattr(ov.Type, TYPES[tensor["data_type"]])
        if port.element_type != wanted:
            attempt(
                f"setting precision for {tensor['name']}", getattr(steps, field)(at).tensor().set_element_type, wanted
            )
            changed = True
    return attempt("apply model preprocessing", steps.build) if changed else read


def _compare(tensor, shape, model):
    """Rejects dims that the model cannot have, with Triton's texts."""
    batches = model.max_batch_size > 0
    dims = dims_of(tensor)
    start = f"model '{model.name}', tensor '{tensor['name']}': "
    if shape.rank.is_dynamic:
        return
    if batches and len(shape) == 0:
        raise LoadError(start + "for the model to support batching the shape should have at least 1 dimension")
    full = [model.max_batch_size, *dims] if batches else list(dims)
    if len(shape) == len(full) and all(_fits(of, dim, batches) for of, dim in list(zip(shape, full))[batches:]):
        return
    own = [dim.get_length() if dim.is_static else -1 for dim in shape]
    how = (
        "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete"
        " shape"
        if batches
        else "shape"
    )
    raise LoadError(
        f"{start}the model expects {len(own)} dimensions (shape {_shown(own)}) but the model configuration specifies"
        f" {len(full)} dimensions ({how} {_shown(full)})"
    )


def _require_rows(tensor, field, rows, model):
    """Rejects a file whose batches have another limit: requests of several clients, each of which fits alone, would
    fail together."""
    most = rows.get_max_length()
    if 0 <= most < model.max_batch_size:
        raise LoadError(
            f"model '{model.name}', {field} '{tensor['name']}': the file allows {_range(rows)} rows in a batch and"
            f" max_batch_size is {model.max_batch_size}: set max_batch_size: {most}, or save the file with a first"
            " dimension of any size"
        )


def bounds_of(ports, places, tensors):
    """The shapes of inputs whose sizes the file limits and the configuration does not."""
    bounds = {}
    for tensor in tensors:
        shape = ports[places[tensor["name"]]].partial_shape
        dims = dims_of(tensor)
        if shape.rank.is_dynamic or len(shape) < len(dims):
            continue
        dims = [-1] * (len(shape) - len(dims)) + list(dims)
        if any(dim == -1 and (of.get_min_length() > 1 or of.get_max_length() >= 0) for of, dim in zip(shape, dims)):
            bounds[tensor["name"]] = list(shape)
    return bounds


def check_shape(name, shape, bounds, model):
    """Raises Triton's error for a shape that the file does not allow."""
    if len(shape) == len(bounds) and all(_fits(of, size, False) for of, size in zip(bounds, shape)):
        return
    raise RequestError(
        f"unexpected shape for input '{name}' for model '{model.name}'. Expected"
        f" {_shown(map(_range, bounds))}, got {_shown(shape)}",
        "INVALID_ARG",
    )


def _range(of):
    """The sizes of a dimension: 3, 1..4, or -1 for any."""
    least, most = of.get_min_length(), of.get_max_length()
    if most < 0:
        return "-1" if least <= 1 else f"{least}.."
    return str(most) if least == most else f"{least}..{most}"


def _fits(of, dim, batches):
    if dim == -1 and (batches or not of.is_static):
        return True
    return (
        of.get_length() == dim
        if of.is_static
        else of.get_min_length() <= dim and (of.get_max_length() < 0 or dim <= of.get_max_length())
    )


def _shown(dims):
    return "[" + ",".join(map(str, dims)) + "]"
