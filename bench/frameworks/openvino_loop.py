"""Writes models of OpenVINO, and runs one in a bare loop with one thread: `python openvino_loop.py REPOSITORY`."""
import sys

import openvino as ov
from openvino import opset13 as ops

from loops import LAYERS, ROWS, inputs, layers, place, serve


def named(node, name):
    node.output(0).get_tensor().set_names({name})
    return node


def identity():
    x = named(ops.parameter([-1], ov.Type.f32, name="INPUT0"), "INPUT0")
    # A result that is its parameter would have two names; an operator by which nothing changes would be left out.
    return ov.Model([named(ops.add(x, ops.constant(0.0, ov.Type.f32)), "OUTPUT0")], [x], "identity")


def network(name):
    y = x = named(ops.parameter([-1, LAYERS[name][0]], ov.Type.f32, name="INPUT0"), "INPUT0")
    for weights, bias in layers(name):
        y = ops.tanh(ops.add(ops.matmul(y, ops.constant(weights), False, False), ops.constant(bias)))
    return ov.Model([named(y, "OUTPUT0")], [x], name)


def main(repository):
    made = {"deep": network("deep"), "mlp": network("mlp"), "mlp_plain": network("mlp"), "identity": identity()}
    for name, model in made.items():
        ov.save_model(model, place(repository, f"openvino_{name}", "model.xml"), compress_to_fp16=False)
    request = ov.Core().compile_model(place(repository, "openvino_deep", "model.xml"), "CPU", {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    values = inputs("deep", ROWS)
    serve({"openvino": ov.__version__}, {"deep": lambda i: request.infer([values[i % len(values)]], share_inputs=True, share_outputs=True)})


main(sys.argv[1])
