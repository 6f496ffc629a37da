"""Calls of the other models."""
import triton_python_backend_utils as pb_utils


def _checked(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}


def _request(model, arrays, outputs, request_id):
    inputs = [pb_utils.Tensor(name, array) for name, array in arrays.items()]
    return pb_utils.InferenceRequest(
        model_name=model, inputs=inputs, requested_output_names=outputs, request_id=request_id
    )


def call(model, arrays, outputs, request_id):
    """Outputs by name."""
    return _checked(_request(model, arrays, outputs, request_id).exec(decoupled=False))


def stream(model, arrays, outputs, request_id):
    """Outputs of each response of a decoupled model."""
    for response in _request(model, arrays, outputs, request_id).exec(decoupled=True):
        yield _checked(response)
