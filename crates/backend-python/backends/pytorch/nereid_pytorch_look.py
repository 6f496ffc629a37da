"""Prints what a TorchScript file says about its inputs and outputs, as JSON: `python nereid_pytorch_look.py FILE`.

`nereid init` runs it, in the interpreter that will serve the model. The file has no datatypes and shapes of tensors.
The model is loaded and not called.
"""
import json
import sys

import nereid_pytorch_files as files


def look(path):
    """`{"inputs": [[name, is_strings]], "outputs": [[name, is_strings]]}`, with null for a list that the file does not
    determine; null for another kind of file."""
    if files.kind_of(path) != files.TORCHSCRIPT:
        return None
    import torch

    method = torch.jit.load(path, map_location="cpu")._c._get_method("forward")
    return {"inputs": _inputs(method), "outputs": _outputs(method)}


def _inputs(method):
    arguments = method.schema.arguments[1:]
    if len(arguments) == 1 and arguments[0].type.kind() == "DictType":
        # Inputs are keys of the dictionary: those that the code reads.
        reads = method.graph.findAllNodes("aten::__getitem__")
        given = list(method.graph.inputs())[-1]
        keys = [_text(key) for of, key in (node.inputs() for node in reads) if of.debugName() == given.debugName()]
        return None if not keys or None in keys else [[key, False] for key in dict.fromkeys(keys)]
    # Numbers and flags cannot be inputs; they keep their defaults.
    return [[one.name, _is_strings(one.type)] for one in arguments if _is_tensor(one.type) or _is_strings(one.type)]


def _outputs(method):
    of = method.schema.returns[0].type
    made = next(method.graph.outputs()).node()
    if of.kind() == "TupleType":
        return _by_position([_is_strings(one) for one in of.elements()])
    if of.kind() == "DictType":
        keys = [_text(key) for key in list(made.inputs())[::2]] if made.kind() == "prim::DictConstruct" else []
        return None if not keys or None in keys else [[key, False] for key in keys]
    if of.kind() != "ListType" or _is_strings(of):
        return _by_position([_is_strings(of)])
    # The type does not have the length, but the code that makes the list often does.
    return _by_position([False] * len(list(made.inputs()))) if made.kind() == "prim::ListConstruct" else None


def _by_position(values):
    return [[f"OUTPUT__{at}", is_strings] for at, is_strings in enumerate(values)]


def _is_tensor(of):
    inner = of.getElementType() if of.kind() == "OptionalType" else of
    return inner.kind() == "TensorType"


def _is_strings(of):
    return of.kind() == "ListType" and of.getElementType().kind() == "StringType"


def _text(value):
    """The constant text of a value in the graph, or None."""
    node = value.node()
    is_text = node.kind() == "prim::Constant" and value.type().kind() == "StringType"
    return node.s("value") if is_text else None


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1])))
