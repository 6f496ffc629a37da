"""Values of a request."""
import triton_python_backend_utils as pb_utils


def array(request, name):
    """Values of an input; None without the input."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


def scalar(request, name, default=None):
    values = array(request, name)
    if values is None:
        return default
    if values.size != 1:
        raise pb_utils.TritonModelException(f"Expected a scalar tensor for tensor {name}")
    return values.item(0)


def sampling_params(request):
    """Arguments of SamplingParams."""
    found = {name: scalar(request, f"sampling_param_{name}") for name in ("temperature", "max_tokens")}
    given = {name: value for name, value in found.items() if value is not None}
    excludes = scalar(request, "sampling_param_exclude_input_from_output", False)
    return {**given, "exclude_input_from_output": excludes, "stop": array(request, "sampling_param_stop")}
