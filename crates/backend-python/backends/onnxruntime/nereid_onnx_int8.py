"""Makes an int8 graph of an ONNX graph: `python nereid_onnx_int8.py PLAN`.

`nereid optimize` runs it in the user's interpreter, which needs onnx and onnxruntime. PLAN is a JSON file:

- `source`, `target`: the graph, and the one to write; `work`: a directory for temporary files
- `method`: "dynamic", "static" or "", which chooses by the graph; `per_channel`, `reduce_range`
- `exclude`: patterns of names of nodes that stay as they are
- `inputs`: requests for a static one, each tensor as [name, datatype of numpy, shape, offset] in the file `data`

Prints what was made, as JSON.
"""
import fnmatch
import importlib.util
import json
import logging
import os
import sys
import warnings

PACKAGES = ("onnx", "onnxruntime")
# Operators whose weights dynamic int8 makes smaller and faster. Of convolutions it makes slower ones.
DYNAMIC = ["MatMul", "Gemm", "Gather", "Attention", "EmbedLayerNormalization", "LSTM"]
STATIC = ["Conv", "MatMul", "Gemm"]
# The first one that has a scale for each channel.
OPSET_MIN = 13
# A graph of protobuf holds less than 2 GiB.
GRAPH_BYTES_MAX = 1_800_000_000
# Names of nodes that an error lists.
NAMED_MAX = 12


def main(plan):
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{sys.executable} has no {' and no '.join(missing)}: {sys.executable} -m pip install {' '.join(missing)}")
    # Advice about preparing a graph, which this does.
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    import onnx.version_converter
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, work = plan["source"], plan["work"]
    model = onnx.load(source, load_external_data=False)
    graph = model.graph
    convolutions = sum(node.op_type == "Conv" for node in graph.node)
    method = plan["method"] or ("static" if convolutions else "dynamic")
    if method == "static" and not plan["inputs"]:
        sys.exit("static int8 needs inputs of the graph itself, which this model has not: use --method=dynamic")
    large = os.path.getsize(source) > GRAPH_BYTES_MAX or any(tensor.data_location for tensor in graph.initializer)
    if method == "static":
        if any(opset.domain in ("", "ai.onnx") and opset.version < OPSET_MIN for opset in model.opset_import):
            source = os.path.join(work, "converted.onnx")
            onnx.save(onnx.version_converter.convert_version(onnx.load(plan["source"]), OPSET_MIN), source)
        # Folds normalisations into convolutions, so that they are not quantised by themselves.
        prepared = os.path.join(work, "prepared.onnx")
        quant_pre_process(source, prepared, skip_symbolic_shape=True, save_as_external_data=large)
        source = prepared
        graph = onnx.load(source, load_external_data=False).graph
    types = STATIC if method == "static" else DYNAMIC
    nodes = [node for node in graph.node if node.op_type in types]
    excluded = exclusions(nodes, plan["exclude"])
    constants = [(node.output[0], one.t) for node in graph.node if node.op_type == "Constant" for one in node.attribute]
    tensors = [*((tensor.name, tensor) for tensor in graph.initializer), *constants]
    weights = {name for name, tensor in tensors if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1}
    left = [node for node in nodes if node.name not in excluded and weights.intersection(node.input)]
    if not left:
        sys.exit(f"the graph has no weights of {', '.join(types)} left, and int8 gains nothing for others")
    options = {
        "per_channel": plan["per_channel"], "reduce_range": plan["reduce_range"], "weight_type": QuantType.QInt8,
        "op_types_to_quantize": types, "nodes_to_exclude": sorted(excluded), "use_external_data_format": large,
    }
    if method == "static":
        reader = Reader(plan["inputs"], plan["data"])
        quantize_static(source, plan["target"], reader, quant_format=QuantFormat.QDQ, activation_type=QuantType.QUInt8, **options)
    else:
        quantize_dynamic(source, plan["target"], **options)
    found = {}
    for node in left:
        found[node.op_type] = found.get(node.op_type, 0) + 1
    print(json.dumps({"method": method, "operators": found, "excluded": len(excluded)}))


def exclusions(nodes, patterns):
    """Names of the nodes that the patterns match; a pattern that matches none is a mistake."""
    names = [node.name for node in nodes]
    excluded = set()
    for pattern in patterns:
        matched = fnmatch.filter(names, pattern)
        if not matched:
            more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
            sys.exit(f"--exclude={pattern} matches no node that becomes int8; there are {', '.join(names[:NAMED_MAX])}{more}")
        excluded.update(matched)
    return excluded


class Reader:
    """Requests for the calibration, one after the other."""

    def __init__(self, requests, data):
        import numpy

        self.bytes = numpy.memmap(data, dtype="uint8", mode="r")
        self.requests = iter(requests)

    def get_next(self):
        request = next(self.requests, None)
        if request is None:
            return None
        return {name: self.tensor(*rest) for name, *rest in request}

    def tensor(self, datatype, shape, offset):
        import numpy

        kind = numpy.dtype(datatype)
        count = int(numpy.prod(shape, dtype="int64"))
        return numpy.frombuffer(self.bytes, kind, count, offset).reshape(shape)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        main(json.load(file))
